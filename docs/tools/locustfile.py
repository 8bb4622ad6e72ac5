"""Load by locust: plain requests and streams, in OpenAI's shape and in this server's own."""

from __future__ import annotations

from locust import HttpUser, task

PROMPT = "Write one sentence about a dog on a beach."
KEYWORDS = {"type": "keywords", "keywords": ["dog", "beach"]}


class Writer(HttpUser):
    @task
    def chat(self) -> None:
        body = {"model": "mini", "max_tokens": 16, "messages": [{"role": "user", "content": PROMPT}]}
        self.client.post("/v1/chat/completions", json=body, name="chat")

    @task
    def stream(self) -> None:
        body = {"model": "mini", "max_tokens": 16, "prompt": PROMPT, "stream": True}
        with self.client.post("/v1/completions", json=body, stream=True, catch_response=True, name="stream") as reply:
            if b"data: [DONE]" not in reply.content:
                reply.failure("the stream has no end")

    @task
    def constrained(self) -> None:
        with self.client.post(
            "/generate", json={"constraint": KEYWORDS, "gen_length": 16}, catch_response=True, name="generate"
        ) as reply:
            if not reply.json()["samples"][0]["text"]:
                reply.failure("the text is empty")
