"""The package alone, in one process: episodes of the actions of BenchmarkPool. usage: bare.py WARM EPISODES ACTION... Prints seconds of EPISODES
episodes behind WARM others, once with what a step needs (observation, score, end), and once with the package's own step (all possible actions too)."""
import os
import sys
import time

os.environ.setdefault("JAVA_TOOL_OPTIONS", "-Xmx384m -XX:+UseSerialGC -XX:+UnlockExperimentalVMOptions -XX:hashCode=2")
from scienceworld import ScienceWorldEnv

warm, episodes, actions = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
env = ScienceWorldEnv(envStepLimit=1000)
server = env.server


def lean(i):
    server.load("find-plant", i % 50, "easy", False)
    server.step("look around")
    for a in actions:
        server.step(a), server.getScore(), server.getCompleted()


def own(i):
    env.load("find-plant", i % 50, "easy", generateGoldPath=False)
    env.reset()
    for a in actions:
        env.step(a)


for i in range(warm):
    lean(i)
begun = time.perf_counter()
for i in range(episodes):
    lean(i)
took, few = time.perf_counter() - begun, max(1, episodes // 20)
for i in range(3):
    own(i)
begun = time.perf_counter()
for i in range(few):
    own(i)
print(took, (time.perf_counter() - begun) / few * episodes)
env.close()
