"""Translates OpenAI's JSON to and from Options, Requests and Events. Pure: no clock, no sockets."""
