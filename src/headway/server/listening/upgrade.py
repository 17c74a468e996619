"""feed: parses requests that ask for another protocol as if they did not."""

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

UPGRADE = b"upgrade"


def feed(protocol: HttpToolsProtocol, data: bytes) -> None:
    """Give the data to the protocol's parser. Raises HttpParserError.

    A server may ignore the wish for another protocol (RFC 9110, 7.8). Java's HttpClient wishes for
    HTTP/2 in its first request. The parser, however, ends at such a header and takes the body for
    the other protocol's. Another parser then gets the header again, without the wish.
    """
    while True:
        try:
            return protocol.parser.feed_data(data)
        except httptools.HttpParserUpgrade as wish:
            head = _without_wish(protocol)
            protocol.parser = httptools.HttpRequestParser(protocol)
            protocol.parser.set_dangerous_leniencies(lenient_data_after_close=True)
            data = head + data[wish.args[0] :]


def _without_wish(protocol: HttpToolsProtocol) -> bytes:
    """The header that was parsed last, without its wish."""
    parser = protocol.parser
    if (method := parser.get_method()) == b"CONNECT":  # this method itself is such a wish
        raise httptools.HttpParserError("CONNECT is for proxies")
    version = parser.get_http_version().encode()
    fields = [b"%s: %s\r\n" % each for each in protocol.headers if each[0] != UPGRADE]
    return b"%s %s HTTP/%s\r\n%s\r\n" % (method, protocol.url, version, b"".join(fields))
