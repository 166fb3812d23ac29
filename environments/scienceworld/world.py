"""ScienceWorld's tasks as an environment: one Java process, of which a step asks for no more than what is observed, the score and the end. The
package's own step computes the look, the inventory and all possible actions each time, which takes a hundred times as long."""

import shutil

from agentfly_environment import Refused, WrongTask

LONGEST = 1000  # characters of an action


class World:
    def __init__(self, tasks, simplification="easy", eval_fold="dev"):
        if shutil.which("java") is None:
            raise Refused("java is missing; install it: apt-get install default-jre-headless")
        from scienceworld import ScienceWorldEnv

        self.env = ScienceWorldEnv()
        self.server = self.env.server
        known = list(self.server.getTaskNames())
        for task in tasks:
            if task not in known:
                raise Refused("there is no task %s; the tasks are %s" % (task, ", ".join(known)))
        possible = ["easy"] + self.server.getPossibleSimplifications().split(", ")
        for name in filter(None, simplification.split(",")):
            if name not in possible:
                raise Refused("there is no simplification %s; they are %s" % (name, ", ".join(possible)))
            electric = [t for t in tasks if "power-component" in t or "conductivity" in t]
            if name == "noElectricalAction" and electric:
                raise Refused("the task %s needs electrical actions, which the simplification %s takes away" % (electric[0], name))
        self.names, self.simplification, self.eval_fold = tasks, simplification, eval_fold
        self.variations, self.where = {}, None

    def of(self, task, fold):
        """The variations of a fold, which the server knows of the task that is loaded."""
        if task not in self.variations:
            self.server.load(task, 0, self.simplification, False)
            s = self.server
            self.variations[task] = {"train": list(s.getVariationsTrain()), "dev": list(s.getVariationsDev()), "test": list(s.getVariationsTest())}
        return self.variations[task][fold]

    def tasks(self, split, n):
        folds = {"train": "train", "eval": self.eval_fold}
        if split not in folds:
            raise Refused("there is no split %s; the splits are train and eval" % split)
        left, out = [list(self.of(task, folds[split])) for task in self.names], []
        while len(out) < n and any(left):
            for name, variations in zip(self.names, left):
                if variations and len(out) < n:
                    v = variations.pop(0)
                    out.append({"id": "%s-%d" % (name, v), "prompt": [], "fields": {"task": name, "variation": v, "seed": v}})
        return out

    def reset(self, seed, task=None, variation=None):
        task = task or self.names[seed % len(self.names)]
        if task not in self.names:
            raise WrongTask("the task %s is none of the job's; they are %s" % (task, ", ".join(self.names)))
        if variation is None:
            train = self.of(task, "train")
            variation = train[seed // len(self.names) % len(train)]
        most = self.server.getTaskMaxVariations(task)
        if type(variation) not in (int, float) or not 0 <= variation < most or variation != int(variation):
            raise WrongTask("%s has the variations 0 to %d, and the task says %.40r" % (task, most - 1, variation))
        self.where = task, int(variation)
        self.new(False)
        return self.server.getTaskDescription().strip() + "\n" + self.seen, {"task": task, "variation": variation}

    def new(self, gold):
        """The server builds the world when it loads; its reset would build it once more."""
        self.server.load(self.where[0], self.where[1], self.simplification, gold)
        self.seen = self.server.step("look around").strip()
        self.reached = 0.0

    def ask(self, *calls):
        """What the server answers to several calls, each a name and its arguments. They are sent at once and answered in their order, so that
        this process and Java's wait for each other once, not at each call. The frames are py4j's; its own client sends one call at a time."""
        from py4j.protocol import get_command_part, get_return_value, smart_decode

        client, server = self.server._gateway_client, self.server._target_id
        frames = ["c\n%s\n%s\n%se\n" % (server, name, "".join(map(get_command_part, arguments))) for name, *arguments in calls]
        connection = client._get_connection()
        try:
            connection.socket.sendall("".join(frames).encode())
            answers = [smart_decode(connection.stream.readline()[:-1]) for _ in calls]
            if "" in answers:
                raise RuntimeError("its Java process ended")
        except BaseException:
            connection.close()  # answers may be left in it
            raise
        client._give_back_connection(connection)
        return [get_return_value(answer[1:], client, server, call[0]) for answer, call in zip(answers, calls)]

    def step(self, action):
        action = " ".join(action.split())
        if len(action) > LONGEST:
            return "No known action matches that input.", 0.0, False, False, {"agentfly": {"failure": "policy"}}
        observation, raw, completed = self.ask(("step", action), ("getScore",), ("getCompleted",))
        observation = observation.strip()
        if observation.startswith("No known action matches"):
            return observation, 0.0, False, False, {"agentfly": {"failure": "policy"}}
        raw = round(raw, 2)
        score = max(0.0, raw)  # what cannot be mended has a score below 0
        reward, self.reached = score - self.reached, score
        return observation, reward, bool(completed) or raw < 0, False, {"score": score, "success": raw >= 1, "failure": raw < 0}

    def score(self):
        return self.reached

    def actions(self):
        """The package's list. About one in six of it is refused all the same: the package cannot say which without doing it."""
        return sorted(self.server.getValidActionObjectCombinations())

    def solution(self):
        self.server.load(self.where[0], self.where[1], self.simplification, True)
        gold = list(self.server.getGoldActionSequence())
        self.new(False)
        for i, action in enumerate(gold):  # some paths go on after the end
            self.server.step(action)
            if self.server.getCompleted():
                gold = gold[: i + 1]
                break
        self.new(False)
        return gold

    def check(self):
        if self.env._gateway.java_process.poll() is not None:
            raise RuntimeError("its Java process ended")

    def close(self):
        self.env.close()
