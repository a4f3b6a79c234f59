"""The actions of locust's users in test_load_tools.py: they ask for whole answers and for streams, and check both."""
import json

from locust import HttpUser, constant, task

BODY = {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0, "ignore_eos": True}


class Reader(HttpUser):
    wait_time = constant(0)

    def right(self):
        """Returns the text that all answers must have."""
        if not hasattr(type(self), "text"):
            type(self).text = self.client.post("/v1/completions", json=BODY, name="first").json()["choices"][0]["text"]
        return self.text

    @task
    def whole(self):
        right = self.right()
        with self.client.post("/v1/completions", json=BODY, name="whole", catch_response=True) as answer:
            if answer.status_code != 200 or answer.json()["choices"][0]["text"] != right:
                answer.failure(f"{answer.status_code}: {answer.text}")

    @task
    def stream(self):
        right = self.right()
        with self.client.post("/v1/completions", json={**BODY, "stream": True}, name="stream", stream=True, catch_response=True) as answer:
            lines = [line.removeprefix(b"data: ") for line in answer.iter_lines() if line]
            text = "".join(json.loads(line)["choices"][0]["text"] for line in lines[:-1])
            if lines[-1:] != [b"[DONE]"] or text != right:
                answer.failure(f"{answer.status_code}: {lines}")
