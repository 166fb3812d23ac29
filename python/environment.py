"""The worker of an environment: one object of a class, whose methods answer requests one after the other. See protocol.go for them.

What the class offers says which protocol it has: KINDS, from the most particular to the most general. An adapter gives them one form. The time
that the class itself takes is measured in it, so that the other side knows what the rest of a request cost.
"""

import base64
import dataclasses
import enum
import importlib
import inspect
import json
import math
import os
import random
import re
import select
import struct
import sys
import threading
import time
import traceback

from agentfly_files import execute, last_line, load_error, show, unread
from agentfly_hints import Unsupported, add_default, convert, encode, hints_of, optional, plain, schema_of

MOST_INFO = 16 << 10  # characters of one entry of info
MOST_NUMBER = 10**300  # of an entry of info: who reads it has floats
MOST_CHOICES = 1000  # of a space whose actions are listed
CHOICES = ("valid_actions", "admissible_commands", "validActions", "available_actions")  # entries of info with the possible actions
MASK = "action_mask"  # of those of the space


class Refused(Exception):
    """The class, the configuration or what a method gave is wrong; the text says what to do."""


class WrongTask(Refused):
    """The task is wrong, not the environment, which can be reset for another one."""


class Impossible(Exception):
    """The agent's action means nothing here; the text, which it reads, says what would."""


# Observations.


def number(v):
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, int):
        return str(v)
    if v != v or v in (math.inf, -math.inf):
        return str(v)
    return str(int(v)) if v == int(v) and abs(v) < 1e15 else "%.4g" % v


class Writer:
    """Writes a value as compact JSON, numbers with four digits, and stops when it is long enough: of 50 MB nobody reads more."""

    def __init__(self, most):
        self.most, self.out, self.size = most, [], 0

    def add(self, text):
        self.out.append(text)
        self.size += len(text)

    def value(self, v, depth=0):
        if self.size > self.most:
            return
        if isinstance(v, str):
            self.add(json.dumps(v[: self.most + 1], ensure_ascii=False))
        elif v is None:
            self.add("null")
        elif isinstance(v, (bool, int, float)):
            self.add(number(v))
        elif isinstance(v, (bytes, bytearray, memoryview)):
            raise Refused("an observation has bytes in it; give text, or an array with images: true")
        elif depth > 50:
            raise Refused("an observation is nested more than 50 deep")
        elif isinstance(v, dict):
            self.each("{", "}", v.items(), depth, True)
        elif isinstance(v, (list, tuple, set, frozenset)):
            self.each("[", "]", v if isinstance(v, (list, tuple)) else sorted(v, key=str), depth, False)
        elif callable(getattr(v, "tolist", None)) and hasattr(v, "shape"):
            self.value(v.tolist() if getattr(v, "size", 0) <= self.most else list(v), depth)
        else:
            self.value(fields_of(v), depth + 1)

    def each(self, start, end, values, depth, named):
        self.add(start)
        for i, v in enumerate(values):
            if self.size > self.most:
                break
            if i:
                self.add(",")
            if named:
                self.add(json.dumps(str(v[0]), ensure_ascii=False) + ":")
                v = v[1]
            self.value(v, depth + 1)
        self.add(end)


def fields_of(v):
    """An object's fields, as a dict: of a dataclass, a pydantic model or a named tuple; else what JSON writes for it."""
    if dataclasses.is_dataclass(v) and not isinstance(v, type):
        return {f.name: getattr(v, f.name) for f in dataclasses.fields(v)}
    if callable(getattr(v, "model_dump", None)):
        return v.model_dump()
    return plain(v)


def is_image(v):
    shape = getattr(v, "shape", None)
    return shape is not None and len(shape) == 3 and shape[2] in (1, 3, 4) and str(getattr(v, "dtype", "")) == "uint8" and v.size > 64


def png(v):
    """The data URL of a uint8 array of height × width × 1, 3 or 4."""
    import zlib

    height, width, channels = v.shape
    rows = b"".join(b"\0" + v[y].tobytes() for y in range(height))

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, 8, {1: 0, 3: 2, 4: 6}[channels], 0, 0, 0)
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 6)) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(data).decode()


def at(value, path):
    """What lies at a path such as board.cells.0 in a value: keys, fields and indices."""
    for name in path.split("."):
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, (list, tuple)) and re.fullmatch(r"-?\d+", name) and -len(value) <= int(name) < len(value):
            value = value[int(name)]
        elif not isinstance(value, dict) and hasattr(value, name):
            value = getattr(value, name)
        else:
            known = sorted(value, key=str) if isinstance(value, dict) else [n for n in dir(value) if not n.startswith("_")]
            raise Refused("text: the observation has no %s at %s; it has %s" % (name, path, ", ".join(map(str, known[:20])) or "no fields"))
    return value


def strip_colours(text):
    """Text of a terminal without its colours; what stands on a colour is put in brackets, as FrozenLake's player is."""
    text = re.sub(r"\x1b\[4\dm(.*?)\x1b\[0?m", r"[\1]", text, flags=re.S)
    return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)


class Observations:
    """Makes parts of what a class gives."""

    def __init__(self, config):
        self.most, self.images, self.text = config.get("max_observation") or 65536, config.get("images"), config.get("text")

    def parts(self, v):
        images = []
        text = self.write(self.take(v, images))
        out = [{"type": "text", "text": text}] if text else []
        return out + [{"type": "image", "image": url} for url in images]

    def take(self, v, images):
        """The value without its images, which are collected."""
        if self.text:
            if "{" in self.text:
                return re.sub(r"\{([\w.-]+)\}", lambda m: self.write(at(v, m.group(1))), self.text)
            v = at(v, self.text)
        if is_image(v) or callable(getattr(v, "save", None)) and hasattr(v, "getpixel"):
            return self.image(v, images)
        if isinstance(v, dict) and any(is_image(x) for x in v.values()):
            return {k: x for k, x in v.items() if not is_image(x) or self.image(x, images)}
        return v

    def image(self, v, images):
        if not self.images:
            size = "x".join(map(str, getattr(v, "shape", ()) or getattr(v, "size", ())))
            raise Refused("an observation is an image of %s; write images: true, or render: ansi where the environment renders text" % size)
        images.append(png(v) if hasattr(v, "shape") else plain(v))

    def write(self, v):
        if v is None:
            return ""
        if isinstance(v, str):
            return self.cut(v, len(v))
        w = Writer(self.most)
        w.value(v)
        text = "".join(w.out)
        return self.cut(text, None if w.size > self.most else len(text))

    def cut(self, text, size):
        """size is None where nobody knows how long it would be."""
        if size is not None and size <= self.most:
            return text.encode("utf-8", "replace").decode() if not text.isascii() else text
        left = "the rest" if size is None else "%d characters" % (size - self.most)
        return self.cut(text[: self.most], self.most) + "\n[%s left out]" % left


class TooMuch(Exception):
    """A value holds more values than are kept, or itself."""


def clean(v, depth=0, left=None):
    """What JSON can hold: numbers that are not finite as null, objects by what they hold. left has the number of values that are still kept, of
    info; None: any."""
    if left is not None:
        left[0] -= 1
        if left[0] < 0:
            raise TooMuch
        if isinstance(v, int) and not -MOST_NUMBER < v < MOST_NUMBER:
            return "[a number of more than 300 digits]"
    if v is None or isinstance(v, (bool, int, str)):
        return v
    if isinstance(v, float):
        return v if math.isfinite(v) else None
    if depth > 20:
        return None
    if isinstance(v, dict):
        return {str(k): clean(x, depth + 1, left) for k, x in v.items()}
    if isinstance(v, (list, tuple)):
        return [clean(x, depth + 1, left) for x in v]
    if getattr(v, "size", 0).__class__ is int and getattr(v, "size", 0) > MOST_INFO:
        return "[%d values left out]" % v.size
    try:
        out = fields_of(v)
    except Exception:  # of any class
        out = str(v)
    return clean(out, depth + 1, left) if type(out) is not type(v) else str(v)


def info_of(info):
    """Info for the record: an entry that is too long, or that cannot be written, is left out, and says so."""
    if not isinstance(info, dict):
        return {}
    out = {}
    for key, v in info.items():
        if isinstance(v, (str, bytes, list, tuple, dict)) and len(v) > MOST_INFO:
            out[str(key)] = "[%d left out]" % len(v)
            continue
        try:
            v = clean(v, left=[MOST_INFO])
        except MemoryError:
            raise
        except Exception:  # of any class
            v = "[a %s left out]" % type(v).__name__
        if not isinstance(v, (int, float, bool, type(None))):
            size = len(v) if isinstance(v, str) else len(json.dumps(v))
            if size > MOST_INFO:
                v = "[%d characters left out]" % size
        out[str(key)] = v
    return out


def kept(state):
    """The state, where JSON gives it back: numpy's arrays as lists, but no key and no object as its text."""
    if isinstance(state, dict):
        for key in state:
            if not isinstance(key, str):
                raise Refused("get_state gave a dict with the key %r, and of keys JSON keeps the text alone; write str(key), and read it so in set_state" % (key,))
        return {key: kept(v) for key, v in state.items()}
    if isinstance(state, (list, tuple)):
        return [v if type(v) in (int, float, str, bool) else kept(v) for v in state]
    if state is None or isinstance(state, (int, float, str)):
        return state
    out = fields_of(state)
    if type(out) is str and not isinstance(state, enum.Enum):
        raise Refused("get_state gave a %s, which JSON does not hold; give numbers, texts, lists and dicts" % type(state).__name__)
    return kept(out)


def packed(words):
    """Numbers of 32 bits as text, in half the size of their JSON."""
    return base64.b64encode(struct.pack("<%dI" % len(words), *words)).decode()


def unpacked(text):
    raw = base64.b64decode(text)
    return struct.unpack("<%dI" % (len(raw) // 4), raw)


def sources():
    """The states of the global sources of random numbers, Python's and, where it is loaded, numpy's, as JSON holds them."""
    version, words, gauss = random.getstate()
    out = {"random": [version, packed(words), gauss]}
    if "numpy" in sys.modules:
        state = sys.modules["numpy"].random.get_state()
        if isinstance(state, tuple):  # else the class set a generator of its own
            out["numpy"] = [state[0], packed(state[1].tolist())] + list(state[2:])
    return out


def draw_from(states):
    """Has the global sources go on from what sources gave."""
    version, words, gauss = states["random"]
    random.setstate((version, unpacked(words), gauss))
    if "numpy" in states:
        import numpy

        name, words, *rest = states["numpy"]
        numpy.random.set_state((name, numpy.array(unpacked(words), dtype=numpy.uint32), *rest))


# Actions.


def kind_of(space):
    names = {c.__name__ for c in type(space).__mro__}
    for kind in ("Discrete", "Text", "MultiDiscrete", "MultiBinary", "Box", "Tuple", "Dict"):
        if kind in names:
            return kind
    return None


class Actions:
    """Reads the agent's text as an action of a space."""

    def __init__(self, space, names):
        self.space, self.kind = space, kind_of(space)
        first = int(getattr(space, "start", 0)) if self.kind == "Discrete" else 0
        if isinstance(names, list):
            if names and self.kind not in (None, "Discrete"):
                raise Refused("actions: a list is for a space whose actions are numbers, and this one is %s; write a mapping of names to its values" % (space,))
            names = {name: first + i for i, name in enumerate(names)}
        if names and self.kind == "Discrete":
            for name, value in names.items():
                if isinstance(value, bool) or not isinstance(value, int) or not self.has(value):
                    raise Refused("actions: %s: %r is not one of the space's %d actions, %d to %d" % (name, value, space.n, first, first + space.n - 1))
            names = dict(sorted(names.items(), key=lambda pair: pair[1]))
        elif names and self.kind:
            for name, value in names.items():
                try:
                    self.build(value)
                except Exception:  # of any space
                    raise Refused("actions: %s: %r is not one of the actions of the space %s" % (name, value, space))
        self.names = names or {}
        self.folded = {name.casefold(): name for name in self.names}

    def has(self, value):
        first = int(getattr(self.space, "start", 0))
        return first <= value < first + int(self.space.n)

    def read(self, text):
        if not self.names and self.kind in (None, "Text"):
            if self.kind and not self.space.contains(text):
                raise Impossible("This is not a possible action; actions are %s." % self.possible())
            return text
        word = text.strip()
        name = word if word in self.names else self.folded.get(word.casefold())
        if name is not None:
            value = self.names[name]
            return self.build(value) if self.kind not in (None, "Discrete", "Text") else value
        if self.kind == "Discrete" and re.fullmatch(r"[+-]?\d{1,18}", word) and self.has(int(word)):
            return int(word)
        if self.kind not in (None, "Text", "Discrete"):
            try:
                return self.build(json.loads(word))
            except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
                pass
        shown = word if len(word) <= 100 else word[:100] + "…"
        raise Impossible('There is no action "%s"; actions are %s.' % (shown, self.possible()))

    def build(self, value):
        value = shaped(self.space, value)
        if not self.space.contains(value):
            raise ValueError("not in the space")
        return value

    def possible(self):
        if self.names:
            return listed(list(self.names))
        if self.kind == "Discrete":
            first = int(getattr(self.space, "start", 0))
            return "the numbers %d to %d" % (first, first + int(self.space.n) - 1)
        if self.kind == "Text":
            return "texts of %s to %s characters" % (getattr(self.space, "min_length", 0), getattr(self.space, "max_length", "any number of"))
        return "JSON values of %s" % self.space

    def choices(self, info):
        """The actions that are possible now, or None where they cannot be listed."""
        for key in CHOICES:
            values = info.get(key) if isinstance(info, dict) else None
            if isinstance(values, (list, tuple)) and all(isinstance(v, str) for v in values):
                return list(values)
        out = None
        if self.names:
            out = list(self.names.items())
        elif self.kind == "Discrete" and self.space.n <= MOST_CHOICES:
            first = int(getattr(self.space, "start", 0))
            out = [(str(first + i), first + i) for i in range(int(self.space.n))]
        if out is None:
            return None
        mask = info.get(MASK) if isinstance(info, dict) else None
        if mask is not None and self.kind == "Discrete" and len(mask) == int(self.space.n):
            first = int(getattr(self.space, "start", 0))
            out = [pair for pair in out if mask[pair[1] - first]]
        return [name for name, _ in out]


def listed(words):
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


def shaped(space, value):
    """A JSON value as what the space holds."""
    kind = kind_of(space)
    if kind in ("Box", "MultiDiscrete", "MultiBinary"):
        out = array(space, kind, value)
        return out if out.shape == space.shape else out.reshape(space.shape)
    if kind == "Discrete":
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError("no whole number")
        return value
    if kind == "Tuple":
        return tuple(shaped(s, v) for s, v in zip(space.spaces, value)) if len(value) == len(space.spaces) else ()
    if kind == "Dict":
        if set(value) != set(space.spaces):
            raise ValueError("not the space's keys")
        return {k: shaped(s, value[k]) for k, s in space.spaces.items()}
    return value


def array(space, kind, value):
    """An array of exactly the numbers that a JSON value has: none is rounded, read out of a text or made an infinity."""
    import numpy

    floats = numpy.issubdtype(space.dtype, numpy.floating)
    allowed = (int, float) if floats else (int, bool) if kind == "MultiBinary" or space.dtype == bool else (int,)
    given = numpy.array(value, dtype=object)
    if any(type(v) not in allowed for v in given.flat):
        raise ValueError("not the space's kind of number")
    out = given.astype(space.dtype)
    if not (numpy.isfinite(out) if floats else out == given).all():
        raise ValueError("no number of the space's type")
    return out


# Calls.


def takes(f):
    """The names that a function takes, and whether it takes any other."""
    try:
        parameters = inspect.signature(f).parameters.values()
    except (TypeError, ValueError):
        return set(), True
    names = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return names, any(p.kind is p.VAR_KEYWORD for p in parameters)


class Read(dict):
    """Options that know which of them were looked at: what nobody reads is a mistake in a task."""

    def __init__(self, values):
        super().__init__(values)
        self.seen = set()

    def saw(self, key):
        self.seen.add(key)
        return key

    def __getitem__(self, key):
        return super().__getitem__(self.saw(key))

    def __contains__(self, key):
        return super().__contains__(self.saw(key))

    def get(self, key, default=None):
        return super().get(self.saw(key), default)

    def pop(self, key, *default):
        return super().pop(self.saw(key), *default)

    def __iter__(self):
        self.seen.update(super().keys())
        return super().__iter__()

    def keys(self):
        self.seen.update(super().keys())
        return super().keys()

    def items(self):
        self.seen.update(super().keys())
        return super().items()

    def values(self):
        self.seen.update(super().keys())
        return super().values()

    def copy(self):
        return dict(self.items())


def unknown(name, fields, hint):
    return WrongTask("the task has %s, which %s does not know; %s" % (listed(["the field " + f for f in sorted(fields)]), name, hint))


class Adapter:
    """Gives a class the one form: reset(seed, fields, prompt) → observation, info; step(action) → observation, reward, terminated, truncated, info."""

    protocol, begins = "", "reset"  # begins: the method that does
    seeded = False  # reset takes a seed

    def __init__(self, env, config, name):
        self.env, self.config, self.name, self.own, self.loop = env, config, name, 0, None
        self.last_info = {}
        self.reserved, self.job = set(config["reserved"]), set()
        self.actions = Actions(getattr(env, "action_space", None), config.get("actions"))

    def call(self, f, *args, **kwargs):
        """Calls the class, and counts its time."""
        start = time.perf_counter_ns()
        try:
            value = f(*args, **kwargs)
            return self.settled(value) if inspect.isawaitable(value) else value
        finally:
            self.own += time.perf_counter_ns() - start

    def settled(self, value):
        import asyncio  # here, because a third of a start is this import, and few classes are async

        if self.loop is None:
            self.loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self.loop)

        async def wait():
            return await value

        return self.loop.run_until_complete(wait())

    def tools(self):
        return []

    def claim(self, data, job):
        """Says which fields of the next task others read: those of data stand in every data line, those of job may be the environment's as well."""
        self.reserved, self.job = set(self.config["reserved"]).union(data), set(job)

    def known(self, fields, names=()):
        """The fields without those that stand in every data line, which are the environment's where its reset names them."""
        return {k: v for k, v in fields.items() if k in names or k not in self.reserved}

    def refuse(self, fields, hint="leave it out, or name it in reset's arguments"):
        """Refuses a task with fields that reset does not take and nobody else reads."""
        wrong = [k for k in fields if k not in self.reserved and k not in self.job]
        if wrong:
            raise unknown(self.name, wrong, hint)

    def given(self, f, fields):
        """The fields as arguments of f."""
        names, more = takes(f)
        mine = {k: v for k, v in fields.items() if k in names or more and k not in self.reserved}
        self.refuse(set(fields) - set(mine))
        return mine

    def begin(self, **arguments):
        """Calls reset. A task without a field that it needs is the task's fault."""
        try:
            inspect.signature(self.env.reset).bind(**arguments)
        except TypeError as e:
            raise WrongTask("the task does not fit reset: %s" % e)
        except ValueError:  # of a function that does not say what it takes
            pass
        return self.call(self.env.reset, **arguments)

    def step(self, action):
        raise NotImplementedError

    def text(self, action):
        if action.get("name"):
            raise Refused("the environment has no tool %s; it takes texts" % action["name"])
        return self.actions.read(action.get("text") or "")

    def offers(self, method, *arguments):
        """Tells whether the class has a method of that name that takes the arguments, which is a power. One that takes others is the class's own."""
        f = getattr(self.env, method, None)
        if not callable(f) or method in [t["name"] for t in self.tools()]:
            return False
        try:
            inspect.signature(f).bind(*arguments)
        except TypeError:
            return False
        except ValueError:  # it does not say what it takes
            pass
        return True

    def choices(self):
        if self.offers("actions"):
            return list(self.call(self.env.actions))
        return self.actions.choices(self.last_info)

    def told(self):
        """The possible actions where the last info alone tells them, or None."""
        if not any(key in self.last_info for key in (*CHOICES, MASK)) or self.offers("actions"):
            return None
        return self.actions.choices(self.last_info)

    def close(self):
        for method in ("aclose", "close"):
            if callable(getattr(self.env, method, None)):
                self.call(getattr(self.env, method))
                return


class Gymnasium(Adapter):
    """Gymnasium, and gym before it: a step of five values, or of four."""

    protocol = "gymnasium"

    def __init__(self, env, config, name):
        super().__init__(env, config, name)
        self.inner = getattr(env, "unwrapped", env)
        self.render = config.get("render")
        names, more = takes(self.inner.reset)
        self.takes_seed = "seed" in names or more
        self.takes_options = "options" in names
        self.names, self.more = names - {"seed", "options"}, more
        self.seeded = self.takes_seed or callable(getattr(self.inner, "seed", None))

    def reset(self, seed, fields, prompt):
        fields = self.known(fields, self.names)
        arguments = {k: fields.pop(k) for k in list(fields) if k in self.names}
        if self.takes_seed:
            arguments["seed"] = seed
        elif self.seeded:
            self.call(self.env.seed, seed)
        options = None
        if fields and self.takes_options:
            options = arguments["options"] = Read(fields)
        elif self.more:
            arguments.update(fields)
        else:
            self.refuse(fields)
        out = self.begin(**arguments)
        observation, info = out, {}
        if options is not None:
            unread = set(fields) - options.seen - set(self.config.get("fields") or ())
            self.refuse(unread, "its reset did not look at it among its options; leave it out, or list it in the parameter fields where it is read later")
        if isinstance(out, tuple) and len(out) == 2 and isinstance(out[1], dict):
            observation, info = out
        elif self.config["protocol"] == "gymnasium" and out is not None:
            raise Refused("reset gave %s; with protocol gymnasium it gives an observation and a dict, so write protocol: gym" % what(out))
        return self.shown(observation), info

    def step(self, action):
        out = self.call(self.env.step, self.text(action))
        size = len(out) if isinstance(out, tuple) else 0
        if size == 5 and self.config["protocol"] != "gym":
            observation, reward, terminated, truncated, info = out
        elif size == 4 and self.config["protocol"] != "gymnasium":
            observation, reward, done, info = out
            truncated = bool(done and isinstance(info, dict) and info.get("TimeLimit.truncated"))
            terminated = bool(done and not truncated)
        else:
            raise Refused("step gave %s; Gymnasium's gives observation, reward, terminated, truncated, info, and gym's observation, reward, done, info" % what(out))
        return self.shown(observation), reward, terminated, truncated, info

    def shown(self, observation):
        if not self.render:
            return observation
        out = self.call(self.env.render)
        if isinstance(out, list) and out:  # render_mode *_list
            out = out[-1]
        if out is None:
            raise Refused("render gave nothing; give the class render_mode among its kwargs, or leave render out")
        return strip_colours(out) if isinstance(out, str) else out


class TextArena(Adapter):
    """TextArena's games of one player. The observation is what is new since the last one, without what the agent itself wrote."""

    protocol = "textarena"
    seeded = True

    def reset(self, seed, fields, prompt):
        arguments = self.given(self.env.reset, fields)
        arguments.update(num_players=1, seed=seed)
        try:
            self.begin(**arguments)
        except AssertionError as e:
            raise Refused("%s; only games of one player can be played" % (last_line(e),))
        self.errors = 0
        return self.new(), {}

    def state(self):
        return getattr(self.env, "state", None)

    def new(self):
        state = self.state()
        if callable(getattr(state, "get_current_player_observation", None)):
            messages, player = state.get_current_player_observation(), state.current_player_id
        else:
            player, messages = self.call(self.env.get_observation)
        if isinstance(messages, str):
            return messages
        return "\n".join(str(m[1]) for m in messages if m[0] != player)

    def step(self, action):
        done, info = self.call(self.env.step, self.text(action))
        info = dict(info or {})
        errors = getattr(self.state(), "error_count", 0)
        if errors > self.errors:
            info["agentfly"] = {"failure": "policy"}
        self.errors, observation, reward = errors, self.new(), 0.0
        if done:
            out = self.call(self.env.close)
            rewards, games = out if isinstance(out, tuple) and len(out) == 2 else (out, {})
            reward = (rewards or {}).get(0, 0.0)
            game = (games or {}).get(0) or {}
            info.update(game)
            if game.get("reason") and game["reason"] not in observation:
                observation = (observation + "\n" + game["reason"]).strip()
        return observation, reward, bool(done), False, info

    def close(self):
        pass  # close gives the rewards


class SkyRL(Adapter):
    """skyrl-gym: init(prompt) → messages, meta; step(text) → a dict. A class with extras is made anew for each task."""

    protocol, begins = "skyrl_gym", "init"

    def __init__(self, env, config, name):
        super().__init__(env, config, name)
        self.factory, self.extras = config["factory"], config["extras"]

    def reset(self, seed, fields, prompt):
        if self.extras:
            if self.env is not None:
                self.call(self.env.close)
            self.env = None  # where the constructor fails
            self.env = self.call(self.factory, extras=fields)
        else:
            self.refuse(fields, "its constructor takes no extras")
        messages, meta = self.call(self.env.init, prompt)
        return self.written(messages, prompt), meta or {}

    def written(self, messages, before=()):
        if isinstance(messages, str) or not isinstance(messages, list):
            return messages
        if messages[: len(before)] == list(before):
            messages = messages[len(before) :]
        return "\n".join(str(m.get("content", "")) if isinstance(m, dict) else str(m) for m in messages)

    def step(self, action):
        out = self.call(self.env.step, self.text(action))
        if not isinstance(out, dict) or "reward" not in out or "done" not in out:
            raise Refused("step gave %s; skyrl-gym's gives a dict with observations, reward, done and metadata" % what(out))
        done = bool(out["done"])
        truncated = done and getattr(self.env, "turns", 0) >= getattr(self.env, "max_turns", math.inf) > 1 and not out["reward"]
        return self.written(out.get("observations") or []), out["reward"], done and not truncated, truncated, out.get("metadata") or {}

    def close(self):
        if self.env is not None:
            super().close()


def finite(v, name, where="step"):
    """A number that a class gave as a reward. A text is none, whatever it reads as: "1" is a slip that would train unseen."""
    try:
        if isinstance(v, (str, bytes)):
            raise TypeError
        out = float(v)
    except (TypeError, ValueError):
        raise Refused("%s: the %s is %s, not a number" % (where, name, what(v)))
    if not math.isfinite(out):
        raise Refused("%s: the %s is %s; it must be a finite number" % (where, name, out))
    return out


class TRL(Adapter):
    """TRL's environment_factory: reset(**row) and public methods, which are tools. Rewards are the change of its attribute reward, if it has one;
    the episode ends when its attribute done says so."""

    protocol = "trl"

    def __init__(self, env, config, name):
        super().__init__(env, config, name)
        self.methods = methods_of(env)
        self.seeded = "seed" in takes(env.reset)[0]
        self.hints = {n: hints_of(m) for n, m in self.methods.items()}

    def tools(self):
        return [declared(n, m, self.hints[n]) for n, m in self.methods.items()]

    def offers(self, method, *arguments):
        return False  # its public methods are tools

    def reset(self, seed, fields, prompt):
        names, more = takes(self.env.reset)
        arguments = dict(fields) if more else self.given(self.env.reset, fields)
        for key, value in (("seed", seed), ("prompt", prompt)):
            if key in names or more and key == "prompt":
                arguments.setdefault(key, value)
        out = self.begin(**arguments)
        self.reward = self.total("reset")
        return out, {}

    def total(self, where):
        value = getattr(self.env, "reward", 0.0)
        return 0.0 if value is None or callable(value) else finite(value, "reward", where)

    def step(self, action):
        name = action.get("name") or ""
        if name not in self.methods:
            raise Impossible('There is no tool "%s"; tools are %s.' % (name[:100], listed(list(self.methods))))
        given = action.get("arguments") or {}
        try:
            inspect.signature(self.methods[name]).bind(**given)
            values = {k: convert(self.hints[name].get(k, object), v) for k, v in given.items()}
        except (TypeError, ValueError, OverflowError) as e:
            raise Impossible("The arguments of %s are wrong: %s." % (name, e))
        info = {}
        try:
            out = self.call(self.methods[name], **values)
        except MemoryError:
            raise
        except Exception as e:  # TRL tells the model so
            show(e)
            out, info = last_line(e), {"agentfly": {"failure": "policy"}}
        before, self.reward = self.reward, self.total("step")
        return out, self.reward - before, bool(getattr(self.env, "done", False)), False, info


def methods_of(env):
    """The public methods that are tools, in the order of the class."""
    out = {}
    for c in reversed(type(env).__mro__):
        if c is object:
            continue
        for name, value in vars(c).items():
            if not name.startswith("_") and name not in ("reset", "close", "aclose", "start") and inspect.isfunction(value):
                out[name] = getattr(env, name)
    return out


def declared(name, method, hints):
    """A method as protocol.Declared."""
    parameters, is_open = [], False
    for p in inspect.signature(method).parameters.values():
        if p.kind is p.VAR_KEYWORD:
            is_open = True
            continue
        if p.kind in (p.VAR_POSITIONAL, p.POSITIONAL_ONLY):
            raise Refused("the tool %s: the argument %s is positional; arguments are passed by name, so write them out" % (name, p.name))
        try:
            schema = schema_of(optional(hints.get(p.name, p.empty), p.default))
        except Unsupported as e:
            raise Refused("the tool %s: the argument %s: %s" % (name, p.name, e))
        add_default(schema, p.default)
        parameters.append({"name": p.name, "schema": schema, "required": p.default is p.empty})
    return {"kind": "tool", "name": name, "doc": method.__doc__ or "", "line": 1, "parameters": parameters, "open": is_open}


class OpenEnv(Adapter):
    """OpenEnv's Environment: reset and step give an observation object with done and reward; an action is an object too."""

    protocol = "openenv"

    def __init__(self, env, config, name):
        super().__init__(env, config, name)
        self.action = action_class(env)
        if self.action is None:
            raise Refused("its step does not say which class an action has; give its argument action a type hint")
        self.schema = without_metadata(schema_of_class(self.action))
        fields = self.schema.get("properties") or {}
        self.single = next(iter(fields)) if len(fields) == 1 and next(iter(fields.values())).get("type") == "string" else None
        self.takes, self.more = takes(env.reset)
        self.seeded = "seed" in self.takes

    def tools(self):
        if self.single:
            return []
        return [{"kind": "tool", "name": "act", "doc": "acts in the environment", "line": 1, "options": {"schema": self.schema}}]

    def reset(self, seed, fields, prompt):
        arguments = self.given(self.env.reset, fields)
        if "seed" in self.takes:
            arguments["seed"] = seed
        out = self.begin(**arguments)
        return self.shown(out), getattr(out, "metadata", None) or {}

    def shown(self, out):
        """What the observation's text is made of: its fields without those that every observation has; of a single text, that."""
        if self.config.get("text") or out is None or isinstance(out, str):
            return out
        fields = fields_of(out)
        if isinstance(fields, dict):
            fields = {k: v for k, v in fields.items() if k not in ("done", "reward", "metadata")}
            if len(fields) == 1 and isinstance(next(iter(fields.values())), str):
                return next(iter(fields.values()))
        return fields

    def step(self, action):
        given = {self.single: action.get("text") or ""} if self.single else action.get("arguments") or {}
        try:
            if callable(getattr(self.action, "model_validate", None)):
                value = self.action.model_validate(given)
            else:
                inspect.signature(self.action).bind(**given)
                value = convert(self.action, given)
        except MemoryError:
            raise
        except Exception as e:  # whatever its checks raise
            raise Impossible("The action is wrong: %s" % short_validation(e))
        out = self.call(self.env.step, value)
        metadata = getattr(out, "metadata", None) or {}
        done, truncated = bool(getattr(out, "done", False)), bool(metadata.get("truncated"))
        return self.shown(out), getattr(out, "reward", None) or 0.0, done and not truncated, done and truncated, metadata


def short_validation(e):
    if callable(getattr(e, "errors", None)):  # pydantic's
        try:
            return "; ".join("%s: %s" % (".".join(map(str, one["loc"])) or "it", one["msg"]) for one in e.errors()[:5])
        except Exception:  # of another class
            pass
    return last_line(e)


def action_class(env):
    """The class of step's argument."""
    hints = {}
    try:
        hints = hints_of(type(env).step)
    except Unsupported:
        pass
    parameters = [p for p in inspect.signature(type(env).step).parameters if p != "self"]
    hint = hints.get("action", hints.get(parameters[0]) if parameters else None)
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or hasattr(hint, "model_validate")):
        return hint
    for c in type(env).__mro__:
        for base in getattr(c, "__orig_bases__", ()):
            for argument in getattr(base, "__args__", ()):
                if isinstance(argument, type) and (dataclasses.is_dataclass(argument) or hasattr(argument, "model_validate")):
                    return argument
    return None


def schema_of_class(c):
    if callable(getattr(c, "model_json_schema", None)):
        return c.model_json_schema()
    return schema_of(c)


def without_metadata(schema):
    schema = {k: v for k, v in schema.items() if k not in ("title", "description", "doc")}
    schema["type"] = "object"
    schema["properties"] = {k: v for k, v in (schema.get("properties") or {}).items() if k != "metadata"}
    return schema


class AgentFly(Adapter):
    """AgentFly's BaseEnv: start, reset, step and aclose, which may be async."""

    protocol = "agentfly"
    started = False

    def __init__(self, env, config, name):
        super().__init__(env, config, name)
        self.seeded = "seed" in takes(env.reset)[0]

    def reset(self, seed, fields, prompt):
        if not self.started and callable(getattr(self.env, "start", None)):
            self.call(self.env.start)
        self.started = True
        names, more = takes(self.env.reset)
        if "env_args" in names:
            arguments = {"env_args": self.known(fields) or None}
        else:
            arguments = self.given(self.env.reset, fields)
        if "seed" in names:
            arguments["seed"] = seed
        out = self.begin(**arguments)
        if isinstance(out, tuple) and len(out) == 2 and isinstance(out[1], dict):
            return out
        return out, {}

    def step(self, action):
        out = self.call(self.env.step, self.text(action))
        if isinstance(out, tuple) and len(out) == 5:
            return out
        if isinstance(out, tuple) and len(out) == 4:
            return out[0], out[1], bool(out[2]), False, out[3]
        if isinstance(out, dict) and "observation" in out:
            info = {k: v for k, v in out.items() if k not in ("observation", "reward", "done")}
            return out["observation"], out.get("reward") or 0.0, bool(out.get("done")), False, info
        if isinstance(out, tuple) or isinstance(out, dict) and ("reward" in out or "done" in out):
            raise Refused(
                "step gave %s; BaseEnv's gives an observation, or observation, reward, done, info, or a dict with observation, reward and done"
                % what(out)
            )
        return out, 0.0, False, False, {}


KINDS = {c.protocol: c for c in (AgentFly, SkyRL, TextArena, OpenEnv, TRL, Gymnasium)}
KINDS["gym"] = Gymnasium


def what(v):
    if isinstance(v, tuple):
        return "%d values" % len(v)
    return "a " + type(v).__name__


def recognise(env):
    """The protocol of what a class offers, or None."""

    def has(name):
        return callable(getattr(env, name, None))

    if has("step") and (has("aclose") or inspect.iscoroutinefunction(getattr(env, "step", None))):
        return "agentfly"
    if has("init") and has("step"):
        return "skyrl_gym"
    if has("reset") and has("step") and has("get_observation"):
        return "textarena"
    if has("reset") and has("step"):
        if not hasattr(env, "action_space") and (any(c.__module__.startswith("openenv") for c in type(env).__mro__) or action_class(env) is not None):
            return "openenv"
        return "gymnasium"
    if has("reset") and methods_of(env):
        return "trl"
    return None


# Opening.


def install(name, want=""):
    known = {"PIL": "pillow", "cv2": "opencv-python", "yaml": "pyyaml", "sklearn": "scikit-learn", "gym": "gymnasium"}
    package = known.get(name.split(".")[0], name.split(".")[0].replace("_", "-"))
    return "%s -m pip install %s" % (sys.executable, package + want)


def require(packages):
    """Refuses a package that is missing or of another version than the beginning that is given."""
    from importlib import metadata

    for name, want in (packages or {}).items():
        pin = "==" + want if want.count(".") >= 2 else "==%s.*" % want if want else ""
        try:
            have = metadata.version(name)
        except metadata.PackageNotFoundError:
            raise Refused("the package %s is missing; install it: %s" % (name, install(name, pin)))
        if want and have != want and not have.startswith(want.rstrip(".") + "."):
            raise Refused("the package %s has version %s, and %s is needed: %s" % (name, have, want, install(name, pin)))


def offline_nltk():
    """textarena's games of words fetch their lists when they are made: what is missing is named instead."""
    try:
        import nltk
    except ImportError:
        return

    def download(name=None, *args, **kwargs):
        for folder in ("corpora", "tokenizers", "taggers"):
            for end in ("", ".zip"):
                try:
                    nltk.data.find("%s/%s%s" % (folder, name, end))
                    return True
                except LookupError:
                    pass
        raise Refused("it needs nltk's %s; fetch it once: %s -m nltk.downloader %s" % (name, sys.executable, name))

    nltk.download = download


def target_of(c):
    """What makes the environment."""
    if c.get("id"):
        try:
            import gymnasium
        except ModuleNotFoundError:
            raise Refused("the package gymnasium is missing; install it: " + install("gymnasium"))
        return lambda **kwargs: gymnasium.make(c["id"], **kwargs)
    module, _, name = c["class"].rpartition(":")
    if c.get("file"):
        source = c.get("source")
        try:
            value = execute(c["file"], source)
        except ModuleNotFoundError:
            raise
        except BaseException as e:
            show(e)
            raise Refused("%s:%s" % (c["file"], load_error(e, c["file"])))
    else:
        if c.get("folder") and c["folder"] not in sys.path:
            sys.path.insert(0, c["folder"])
        if module.split(".")[0] == "textarena":
            offline_nltk()
        value = importlib.import_module(module)
    where = c.get("file") or module
    for part in name.split("."):
        if not hasattr(value, part):
            offered = sorted(n for n, v in vars(value).items() if inspect.isclass(v) and not n.startswith("_")) if hasattr(value, "__dict__") else []
            raise Refused("%s has no %s; its classes are %s" % (where, part, ", ".join(offered[:20]) or "none"))
        value = getattr(value, part)
    if not callable(value):
        raise Refused("%s:%s is no class or function" % (where, name))
    return value


def seed_numpy(seed):
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)


def open_environment(c):
    name = c["name"]
    require(c.get("requires"))
    kwargs = dict(c.get("kwargs") or {})
    if c.get("render"):
        kwargs.setdefault("render_mode", c["render"])
    random.seed(0)
    target = target_of(c)
    seed_numpy(0)  # which its file may have imported: a world that the constructor draws is the same in every worker
    if inspect.isclass(target):  # what its constructor does not know is an error before anything runs
        try:
            inspect.signature(target).bind_partial(**kwargs)
        except TypeError as e:
            raise Refused("kwargs: %s" % e)
        except ValueError:
            pass
    late = inspect.isclass(target) and callable(getattr(target, "init", None)) and "extras" in takes(target)[0]
    c["factory"], c["extras"] = lambda **more: target(**dict(kwargs, **more)), late
    protocol = c["protocol"]
    env = None if late else c["factory"]()
    if protocol == "auto":
        protocol = "skyrl_gym" if late else recognise(env)
    if protocol is None:
        offered = sorted(n for n in dir(env) if not n.startswith("_") and callable(getattr(env, n, None)))
        raise Refused(
            "the class offers no reset and step (Gymnasium, TextArena, OpenEnv), no init and step (skyrl-gym) and no reset with methods that are tools "
            "(TRL); its methods are %s" % (", ".join(offered[:20]) or "none")
        )
    missing = [n for n in {"skyrl_gym": ("init", "step"), "trl": ("reset",)}.get(protocol, ("reset", "step")) if env is not None and not callable(getattr(env, n, None))]
    if missing:
        raise Refused("protocol %s needs %s, which the class does not have" % (protocol, listed(missing)))
    return KINDS[protocol](env, c, name)


def memory(pid=None):
    """Bytes of this process and those that it started; 0 where the system does not say."""
    pid = pid or os.getpid()
    try:
        with open("/proc/%d/statm" % pid) as f:
            total = int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        for task in os.listdir("/proc/%d/task" % pid):
            with open("/proc/%d/task/%s/children" % (pid, task)) as f:
                total += sum(memory(int(child)) for child in f.read().split())
        return total
    except (OSError, ValueError):
        return 0


class Server:
    def __init__(self, lines, out, leave):
        self.lines, self.out, self.leave, self.process = lines, out, leave, os.getpid()
        self.adapter = self.observations = self.config = None
        self.steps, self.total, self.powers, self.began = 0, 0.0, [], None

    def run(self):
        threading.Thread(target=self.watch, name="agentfly-watch", daemon=True).start()
        for line in self.lines:
            m = self.request(line)
            own = self.adapter.own if self.adapter else 0
            try:
                text = self.refuse(m) if "unread" in m else getattr(self, m["op"])(m.get("arguments") or {})
            except BaseException as e:
                wrong = m["op"] == "env_reset" and isinstance(e, WrongTask) or m["op"] == "env_call" and isinstance(e, Refused)
                task = ',"task":true' if wrong else ""
                self.reply('{"id":%d,"error":%s%s}' % (m["id"], json.dumps(self.failure(e, m["op"])), task))
            else:
                own = self.adapter.own - own if self.adapter else 0
                self.reply('{"id":%d,"own":%d,"result":%s}' % (m["id"], own, text))
            try:
                sys.stdout.flush()
            except Exception:  # the class closed or replaced it
                pass
            if m["op"] == "env_close":
                break
        self.leave()

    def request(self, line):
        """A request. One that Python's JSON cannot read has "unread", which says why, in place of its arguments."""
        try:
            return json.loads(line)
        except Exception as e:
            return unread(line, e)

    def refuse(self, m):
        """Answers a request that cannot be read: of a step it is the agent's action, of others the task or the call is wrong."""
        if m["op"] != "env_step":
            raise WrongTask(m["unread"])
        self.steps += 1
        return self.impossible(m["unread"])

    def watch(self):
        """Ends this process when the other side is gone while a method runs."""
        poll = select.poll()
        poll.register(self.lines.fileno(), 0)
        poll.poll()
        self.leave()

    def reply(self, text):
        if os.getpid() != self.process:  # a child of the class's own came back here: its parent answers
            os._exit(0)
        data = (text + "\n").encode("utf-8", "replace")
        self.out.write(data)
        self.out.flush()

    def failure(self, e, op):
        if isinstance(e, Refused):
            return str(e)
        show(e)
        if isinstance(e, ModuleNotFoundError) and e.name and not str(e.name).startswith("agentfly"):
            return "the module %s is missing; install its package: %s" % (e.name, install(str(e.name)))
        if isinstance(e, MemoryError):
            return "it needs more memory than its limit"
        return ("" if op == "env_open" else op[len("env_") :] + ": ") + last_line(e) + self.place(e)

    def place(self, e):
        """Where an exception passed the class's own file the last, as (FILE:LINE); "" where it did not."""
        config = self.config or {}
        module = sys.modules.get((config.get("class") or "").rpartition(":")[0])
        file, line = config.get("file") or getattr(module, "__file__", None), 0
        for frame in traceback.extract_tb(e.__traceback__):
            if frame.filename == file:
                line = frame.lineno
        return " (%s:%d)" % (os.path.basename(file), line) if line else ""

    # The requests.

    def env_open(self, a):
        a.setdefault("protocol", "auto")
        self.config = a
        self.adapter = open_environment(a)
        self.observations = Observations(a)
        env = self.adapter.env
        offers = self.adapter.offers
        for power, has in (
            ("score", offers("score")),
            ("solution", offers("solution")),
            ("tasks", offers("tasks", "train", 1)),
            ("state", offers("get_state") and offers("set_state", {})),
        ):
            if has:
                self.powers.append(power)
        if self.adapter.offers("actions") or self.adapter.actions.choices({}) is not None:
            self.powers.append("actions")
        out = {"protocol": self.adapter.protocol, "powers": self.powers, "tools": self.adapter.tools(), "seeded": self.adapter.seeded}
        text = getattr(env, "instructions", None)
        if isinstance(text, str):
            out["instructions"] = text
        elif self.adapter.actions.names or self.adapter.actions.kind == "Discrete":
            out["instructions"] = "Actions are %s." % self.adapter.actions.possible()
        return encode(out)

    def env_reset(self, a):
        seed = a["seed"]
        random.seed(seed)  # what draws from the global sources repeats too
        seed_numpy(seed)
        self.adapter.claim(a.get("data") or [], a.get("job") or [])
        prompt = a.get("prompt") or []
        observation, info = self.adapter.reset(seed, a.get("fields") or {}, prompt)
        if observation is None and not prompt:  # else the task has what to begin with
            raise Refused("%s gave None; return the first observation" % self.adapter.begins)
        self.steps, self.total, self.adapter.last_info = 0, 0.0, info if isinstance(info, dict) else {}
        if "state" in self.powers:
            self.began = sources()
        return encode({"observation": self.observations.parts(observation), "info": info_of(info), "memory": memory()})

    def env_step(self, a):
        self.steps += 1
        out = {}
        try:
            observation, reward, terminated, truncated, info = self.adapter.step(a)
        except Impossible as e:
            return self.impossible(str(e))
        self.adapter.last_info = info = dict(info) if isinstance(info, dict) else {}
        for key, value in (info.pop("agentfly", None) or {}).items():
            if key in ("failure", "anchor"):
                out[key] = str(value)
        out.update(observation=self.observations.parts(observation), reward=finite(reward, "reward"), terminated=bool(terminated))
        out.update(truncated=bool(truncated) or self.over() and not terminated, info=info_of(info))
        self.total += out["reward"]
        if out["terminated"] or out["truncated"]:
            self.judge(out)
        return encode(out)

    def over(self):
        """Tells whether the episode's steps are used up."""
        return self.steps >= (self.config.get("max_steps") or math.inf)

    def impossible(self, text):
        """The result of a step whose action means nothing."""
        out = {"observation": [{"type": "text", "text": text}], "failure": "policy"}
        if self.over():
            out["truncated"] = True
            self.judge(out)
        return encode(out)

    def judge(self, out):
        """Says of an episode that is over whether its reward is one of a success, where the parameter success says which is."""
        least = self.config.get("success")
        if least is not None:
            total = finite(self.adapter.call(self.adapter.env.score), "score") if "score" in self.powers else self.total
            out["success"] = total >= least - 1e-9  # of a sum of floats

    def env_actions(self, a):
        out = self.adapter.choices()
        if out is None:
            raise Refused("the possible actions cannot be listed")
        return encode([str(v) for v in out])

    def env_state(self, a):
        state = kept(self.adapter.call(self.adapter.env.get_state))
        now = sources()
        drawn = None if now == self.began else now  # a reset comes to where it began
        return encode({"steps": self.steps, "total": self.total, "state": state, "actions": self.adapter.told(), "sources": drawn})

    def env_restore(self, a):
        self.adapter.call(self.adapter.env.set_state, a["state"]["state"])
        self.steps, self.total = a["state"]["steps"], a["state"].get("total", 0.0)  # older states have none
        if "sources" in a["state"]:  # nor these
            draw_from(a["state"]["sources"] or self.began)
        told = a["state"].get("actions")  # nor these
        self.adapter.last_info = {} if told is None else {CHOICES[0]: told}
        return "null"

    def env_score(self, a):
        return encode(finite(self.adapter.call(self.adapter.env.score), "score"))

    def env_solution(self, a):
        out = self.adapter.call(self.adapter.env.solution)
        return encode([{"text": v} if isinstance(v, str) else v for v in out])

    def env_tasks(self, a):
        return encode(list(self.adapter.call(self.adapter.env.tasks, a["split"], a["n"])))

    def env_check(self, a):
        if self.adapter.offers("check"):
            self.adapter.call(self.adapter.env.check)
        return encode({"memory": memory()})

    def env_call(self, a):
        name = a.get("name") or ""
        method = getattr(self.adapter.env, name, None)
        if name.startswith("_") or not callable(method):
            raise Refused("the environment has no method %s" % name)
        arguments = a.get("arguments") or {}
        try:
            inspect.signature(method).bind(**arguments)
        except TypeError as e:
            raise Refused("the environment's method %s: %s" % (name, e))
        except ValueError:  # it does not say what it takes
            pass
        return encode(clean(self.adapter.call(method, **arguments)))

    def env_close(self, a):
        self.adapter.close()
        return "null"
