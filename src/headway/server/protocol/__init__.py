"""OpenAI's JSON <-> Options, Requests and Events. Pure: no clock, no sockets, no engine."""
