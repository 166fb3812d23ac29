"""Type hints and values: JSON schemas of signatures, arguments as the hints say, results as JSON."""

import collections.abc
import dataclasses
import enum
import inspect
import json
import sys
import types
import typing

MOST = 16 << 20  # bytes of a result


class Unsupported(Exception):
    """A signature has no JSON schema; the text says what to write instead."""


SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
ANY = (inspect.Parameter.empty, typing.Any, object)
LISTS = (list, tuple, set, frozenset, collections.abc.Sequence, collections.abc.Iterable)
DICTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
UNIONS = (typing.Union, getattr(types, "UnionType", typing.Union))
ALLOWED = "use str, int, float, bool, list[T], dict[str, T], Literal, Optional, Union, Enum or a dataclass"


def hints_of(target):
    try:
        if sys.version_info >= (3, 9):
            return typing.get_type_hints(target, include_extras=True)
        return typing.get_type_hints(target)
    except Exception as e:  # a hint is any code
        raise Unsupported("a type hint cannot be resolved: %s; import what it names at the top of the file" % e)


def optional(hint, default):
    """A parameter whose default is None may be None, whatever its hint says; older Pythons add that themselves."""
    if default is None and hint not in ANY:
        return typing.Optional[hint]
    return hint


def of_each(hint):
    """The hint of **kwargs as that of each further argument. Unpack[T] is that of all together, and says nothing of one."""
    return typing.Any if getattr(typing.get_origin(hint), "_name", None) == "Unpack" else hint


def is_dataclass(t):
    return isinstance(t, type) and dataclasses.is_dataclass(t)


def name_of(t):
    return getattr(t, "__name__", None) if isinstance(t, type) and not typing.get_args(t) else str(t).replace("typing.", "")


def arguments_of(t):
    """The arguments of a dataclass, each a field with its hint: fields that its __init__ takes, InitVars among them."""
    hints, kept, out = hints_of(t), {f.name for f in dataclasses.fields(t)}, []
    for f in t.__dataclass_fields__.values():
        hint = hints.get(f.name, typing.Any)
        passed = hint is dataclasses.InitVar or isinstance(hint, dataclasses.InitVar)
        if f.init and (passed or f.name in kept):
            if passed:
                hint = typing.Any if hint is dataclasses.InitVar else hint.type
            out.append((f, hint))
    return out


def schema_of(t, inside=()):
    if t in ANY:
        return {}
    if t is None or t in SIMPLE:
        return {"type": SIMPLE[type(None) if t is None else t]}
    if hasattr(t, "__metadata__"):  # Annotated[T, "description"]
        out = schema_of(t.__origin__, inside)
        out.update({"description": text for text in t.__metadata__ if isinstance(text, str)})
        return out
    if hasattr(t, "__supertype__"):  # NewType
        return schema_of(t.__supertype__, inside)
    origin, args = typing.get_origin(t), typing.get_args(t)
    if origin in UNIONS:
        return union_schema([schema_of(a, inside) for a in args])
    if origin is typing.Literal:
        return literal_schema(args)
    if t in LISTS or origin in LISTS:
        return list_schema(t, origin, args, inside)
    if t in DICTS or origin in DICTS:
        if args and args[0] not in (str, typing.Any):
            raise Unsupported("the keys of a dict must be str, got %s" % name_of(args[0]))
        values = schema_of(args[1], inside) if args else {}
        return {"type": "object", "additionalProperties": values} if values else {"type": "object"}
    if isinstance(t, type) and issubclass(t, enum.Enum):
        return literal_schema([member.value for member in t])
    if is_dataclass(t):
        return dataclass_schema(t, inside)
    raise Unsupported("the type %s is not supported; %s" % (name_of(t), ALLOWED))


def union_schema(members):
    if {} in members:  # one of them is anything
        return {}
    if len(members) == 1:
        return members[0]
    if all(list(m) == ["type"] and isinstance(m["type"], str) for m in members):
        return {"type": [m["type"] for m in members]}
    return {"anyOf": members}


def literal_schema(values):
    kinds = []
    for v in values:
        if type(v) not in SIMPLE:
            raise Unsupported("the value %r of a Literal or an Enum is not supported; use strings and numbers" % (v,))
        kinds.append(SIMPLE[type(v)])
    kinds = list(dict.fromkeys(kinds))
    return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": list(values)}


def list_schema(t, origin, args, inside):
    items = [a for a in args if a is not Ellipsis]
    if (t is tuple or origin is tuple) and Ellipsis not in args and any(a != items[0] for a in items):
        raise Unsupported("a tuple of several types is not supported; use list[T] or a dataclass")
    inner = schema_of(items[0], inside) if items and not isinstance(items[0], typing.TypeVar) else {}
    return {"type": "array", "items": inner} if inner else {"type": "array"}


def dataclass_schema(t, inside):
    if t in inside:
        raise Unsupported("the dataclass %s contains itself; use dict" % t.__name__)
    properties, required = {}, []
    for f, hint in arguments_of(t):
        missing = f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        default = f.default if f.default is not dataclasses.MISSING else inspect.Parameter.empty
        try:
            properties[f.name] = schema_of(optional(hint, default), inside + (t,))
        except Unsupported as e:
            raise Unsupported("field %s of %s: %s" % (f.name, t.__name__, e))
        add_default(properties[f.name], default)
        if missing:
            required.append(f.name)
    out = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    if t.__doc__ and not t.__doc__.startswith(t.__name__ + "("):  # that is what dataclass itself writes
        out["doc"] = t.__doc__
    return out


def add_default(schema, default):
    if default is inspect.Parameter.empty or default is None:
        return
    try:
        schema["default"] = json.loads(json.dumps(default, allow_nan=False, default=lasting))
    except Exception:  # a value is any code
        pass  # the model need not know it


def lasting(v):
    """plain, of what is the same in every worker."""
    out = plain(v)
    if isinstance(out, str) and " at 0x" in out:
        raise TypeError("it is an object at an address")
    return out


# Values.


def convert(t, v):
    """What the function's hint says, of a value that the schema allows."""
    if t in ANY or v is None:
        return v
    if t is float and isinstance(v, int) and not isinstance(v, bool):
        return float(v)
    if t is int and isinstance(v, float) and v == int(v):
        return int(v)
    if hasattr(t, "__metadata__"):
        return convert(t.__origin__, v)
    if hasattr(t, "__supertype__"):
        return convert(t.__supertype__, v)
    origin, args = typing.get_origin(t), typing.get_args(t)
    if origin in UNIONS:
        for member in sorted(args, key=lambda member: member is not type(v)):  # of float and int, 3 is the int
            if fits(member, v):
                return convert(member, v)
        return v
    if origin is typing.Literal:
        return next(iter(meant(args, v)), v)
    if isinstance(v, list) and (t in LISTS or origin in LISTS):
        inner = args[0] if args else typing.Any
        values = [convert(inner, x) for x in v]
        kind = origin or t
        return kind(values) if kind in (tuple, set, frozenset) else values
    if isinstance(v, dict) and (t in DICTS or origin in DICTS):
        return {k: convert(args[1], x) for k, x in v.items()} if args else v
    if isinstance(t, type) and issubclass(t, enum.Enum):
        return t(v)
    if is_dataclass(t) and isinstance(v, dict):
        hints = {f.name: hint for f, hint in arguments_of(t)}
        return t(**{k: convert(hints.get(k, typing.Any), x) for k, x in v.items()})
    return v


def meant(values, v):
    """The values of a Literal that are meant: 1 where the model wrote 1.0, but not where it wrote true."""
    return [value for value in values if value == v and isinstance(value, bool) == isinstance(v, bool)]


def fits(t, v):
    """Whether a member of a union is meant."""
    if hasattr(t, "__metadata__"):
        return fits(t.__origin__, v)
    if hasattr(t, "__supertype__"):
        return fits(t.__supertype__, v)
    if t in (int, float, str, bool):
        return type(v) is t or t is float and type(v) is int or t is int and type(v) is float and v.is_integer()
    if is_dataclass(t):
        names = {f.name for f, _ in arguments_of(t)}
        return isinstance(v, dict) and set(v) <= names
    if isinstance(t, type) and issubclass(t, enum.Enum):
        return v in [member.value for member in t]
    origin = typing.get_origin(t)
    if origin is typing.Literal:
        return bool(meant(typing.get_args(t), v))
    if t in LISTS or origin in LISTS:
        return isinstance(v, list)
    if t in DICTS or origin in DICTS:
        return isinstance(v, dict)
    return False


def plain(v):
    """JSON of what json does not know."""
    if is_dataclass(type(v)):
        return {f.name: getattr(v, f.name) for f in dataclasses.fields(v)}
    if isinstance(v, enum.Enum):
        return v.value
    if isinstance(v, (set, frozenset)):
        return sorted(v) if all(isinstance(x, str) for x in v) else list(v)
    if isinstance(v, (bytes, bytearray)):
        return image_url(bytes(v))
    for method in ("tolist", "item"):  # numpy, torch
        if callable(getattr(v, method, None)):
            return getattr(v, method)()
    if callable(getattr(v, "save", None)) and hasattr(v, "size"):  # PIL
        import io

        out = io.BytesIO()
        v.save(out, format="PNG")
        return image_url(out.getvalue())
    return str(v)


def image_url(data):
    import base64

    kinds = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif", b"RIFF": "webp"}
    for head, kind in kinds.items():
        if data.startswith(head):
            return "data:image/%s;base64,%s" % (kind, base64.b64encode(data).decode())
    raise TypeError("bytes that are no PNG, JPEG, GIF or WebP image; return text")


def encode(value):
    """JSON of a result. Letters of all scripts stay as they are: it may be what a model reads."""
    try:
        text = json.dumps(value, allow_nan=False, default=plain, ensure_ascii=False)
        size = len(text.encode())
    except UnicodeEncodeError:  # half of a pair of surrogates
        text = json.dumps(value, allow_nan=False, default=plain)
        size = len(text)
    except ValueError as e:
        if "JSON compliant" in str(e):
            raise ValueError("the function returned nan or an infinity; return finite numbers")
        raise
    if size > MOST:
        raise ValueError("the function returned %d MiB; the most is %d MiB" % (size >> 20, MOST >> 20))
    return text
