"""Two agents of two calls as one HTTP service, in Python without packages: letters.py roles|decisive PORT.

The task is two letters, and the answer is the first of them. AgentFly posts each task with the address and the key of its gateway; the reply
is the agent's answer and reward.
"""
import json
import sys
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def post(task, path, body):
    head = {"Content-Type": "application/json", "Authorization": "Bearer " + task["api_key"]}
    with DIRECT.open(urllib.request.Request(task["base_url"] + path, json.dumps(body).encode(), head)) as reply:
        return json.loads(reply.read() or b"{}")


def ask(task, system, user):
    """The id of a reply and its text, in a conversation of its own."""
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    reply = post(task, "/v1/chat/completions", {"model": "any", "messages": messages})
    return reply["id"], reply["choices"][0]["message"]["content"] or ""


def roles(task, letters):
    """A planner writes a plan, and a solver reads the letters and the plan. The job tells the two apart by their system prompts."""
    _, plan = ask(task, "plan", letters)
    _, said = ask(task, "solve", letters + plan)
    return {"answer": said, "reward": float(said[:1] == letters[:1])}


def decisive(task, letters):
    """The first call decides, and its reward is posted for it; the trajectory has none of its own. No reward depends on the second call."""
    call, said = ask(task, "solve", letters)
    post(task, "/agentfly/reward", {"reward": float(said[:1] == letters[:1]), "call": call, "id": "solved"})
    ask(task, "talk", letters + said)
    return {"answer": said, "reward": 0}


AGENTS = {"roles": roles, "decisive": decisive}


class Service(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        task = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        out = json.dumps(AGENTS[sys.argv[1]](task, task["task"]["prompt"][-1]["content"])).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(out)))
        self.end_headers()
        self.wfile.write(out)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


if __name__ == "__main__":
    server = Server(("127.0.0.1", int(sys.argv[2])), Service)
    print("ready", server.server_address[1], flush=True)
    server.serve_forever()
