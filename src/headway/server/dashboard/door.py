"""Door: identifies a visitor by header or by session, and signs visitors in and out."""

from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from headway.server.config.durations import SECOND
from headway.server.config.sections.keys import digest
from headway.server.config.tenant import Tenant
from headway.server.dashboard.page.document import PATH, policy, sign_in
from headway.server.dashboard.sessions import LASTS, Sessions
from headway.server.http.body import BodyReader
from headway.server.http.guard import is_same_origin
from headway.server.intake.access_record import access_record
from headway.server.intake.keys import KeyRing
from headway.server.protocol.problem import Problem, wrong

COOKIE = "headway_session"
FORM = "application/x-www-form-urlencoded"
MOST_BODY = 4_096  # bytes of the form
MOST_FIELDS = 8
FOUND = 303  # a redirect that is followed with GET


@dataclass(frozen=True, slots=True)
class Visitor:
    """A caller who looks at the page."""

    tenant: Tenant
    signed_in: bool  # by the form


class Door:
    """Lets visitors in: without configured keys everybody, as everywhere on this server."""

    def __init__(self, keys: KeyRing, bodies: BodyReader, now: Callable[[], int]) -> None:
        self._keys, self._bodies = keys, bodies
        self.sessions = Sessions(now)

    def visitor(self, request: Request) -> Visitor | None:
        """The visitor; None if they must sign in. Raises Problem for a header with a wrong key."""
        if self._keys.is_open or "authorization" in request.headers:
            return Visitor(self._keys.caller(request.headers), signed_in=False)
        key = self.sessions.key_of(request.cookies.get(COOKIE, ""))
        tenant = self._keys.of_digest(key) if key else None
        if tenant is None:  # no session, or its key has since been removed
            return None
        access_record().key = tenant.key
        return Visitor(tenant, signed_in=True)

    async def sign_in(self, request: Request) -> Response:
        """Answer the form. Raises Problem."""
        check_own_form(request)
        async with self._bodies.read(request, MOST_BODY, (FORM,)) as raw:
            key = digest(_field(raw, "key"))
        tenant = self._keys.of_digest(key)
        if tenant is None:
            return page_response(sign_in("This is not a key of this server."), 401)
        access_record().key = tenant.key
        response = RedirectResponse(PATH, FOUND)
        response.set_cookie(
            COOKIE,
            self.sessions.open(key),
            max_age=LASTS // SECOND,
            path=PATH,
            secure=_came_by_tls(request),
            httponly=True,
            samesite="strict",
        )
        return response

    def sign_out(self, request: Request) -> Response:
        """End the session. Raises Problem."""
        check_own_form(request)
        self.sessions.close(request.cookies.get(COOKIE, ""))
        response = RedirectResponse(PATH, FOUND)
        response.delete_cookie(COOKIE, path=PATH)
        return response


def _field(raw: bytearray, name: str) -> str:
    """A field of a form; empty if it is missing. Raises Problem for too many fields."""
    try:
        fields = parse_qs(raw.decode("utf-8", "replace"), max_num_fields=MOST_FIELDS)
    except ValueError as error:
        raise wrong(f"the form has more than {MOST_FIELDS} fields") from error
    return fields.get(name, [""])[0].strip()


def check_own_form(request: Request) -> None:
    """Raise Problem if a foreign page sent the form.

    Browsers say where a form comes from. A client that does not is no browser, so it has no session
    to misuse.
    """
    origin, host = request.headers.get("origin"), request.headers.get("host", "")
    site = request.headers.get("sec-fetch-site", "same-origin")
    is_foreign = origin is not None and not is_same_origin(origin.lower(), host.lower())
    if is_foreign or site not in ("same-origin", "none"):
        raise Problem(403, "this form belongs to another page", code="origin_not_allowed")


def page_response(body: str, status: int = 200) -> HTMLResponse:
    """An HTML response that runs only our own script, is not stored, and cannot be framed."""
    headers = {
        "content-security-policy": policy(),
        "cache-control": "no-store",
        "referrer-policy": "same-origin",
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
    }
    return HTMLResponse(body, status, headers)


def _came_by_tls(request: Request) -> bool:
    """Whether the browser uses TLS, perhaps to a proxy in front. A client that lies about this
    harms only its own cookie."""
    proxied = request.headers.get("x-forwarded-proto", "")
    return "https" in (request.url.scheme, proxied.split(",")[0].strip().lower())
