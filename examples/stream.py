"""A streamed answer through the openai package, from `make serve` or `headway serve`."""

import sys

from openai import OpenAI

PORT = sys.argv[2] if len(sys.argv) > 2 else "8000"
client = OpenAI(base_url=f"http://127.0.0.1:{PORT}/v1", api_key="none is needed")
stream = client.completions.create(
    model="headway-tiny",
    prompt=sys.argv[1] if len(sys.argv) > 1 else "The json module",
    max_tokens=40,
    stream=True,
    # A lane by name, if it is not to be the default one: extra_headers={"X-Headway-Lane": ...}
)
for chunk in stream:
    print(chunk.choices[0].text, end="", flush=True)
print()
