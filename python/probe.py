"""Tells where an interpreter lies (a python3 on PATH may be a script that starts another one slowly), what of it a sandbox must show, and,
where a file is named, which modules of the file's folder it imports: their files by name. Nothing of the file is run."""
import ast
import glob
import importlib.machinery
import json
import os
import site
import sys
import sysconfig


def interpreter():
    """The program, its libraries and its packages; not the whole prefix: a virtual environment may be made in a project's folder."""
    wanted = [sys.executable, os.path.realpath(sys.executable), os.path.join(sys.prefix, "pyvenv.cfg"), os.path.dirname(os.__file__)]
    wanted += [path for name, path in sysconfig.get_paths().items() if name in ("stdlib", "platstdlib", "purelib", "platlib")]
    wanted += getattr(site, "getsitepackages", lambda: [])()
    wanted += [os.path.join(sys.base_prefix, name) for name in ("lib", "lib64")]
    wanted += glob.glob(os.path.join(sysconfig.get_config_var("LIBDIR") or "", "libpython*.so*"))
    return sorted({path for path in wanted if path and os.path.exists(path)})


class Siblings:
    """The modules of a folder that a file imports, wherever the import stands, and those that they import."""

    def __init__(self, folder):
        self.folder, self.found = folder, {}

    def read(self, path, package):
        try:
            with open(path, "rb") as f:
                tree = ast.parse(f.read())
        except (OSError, SyntaxError, ValueError):
            return  # the worker says what is wrong with it
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for name in node.names:
                    self.module(name.name)
            elif isinstance(node, ast.ImportFrom):
                above = package[: len(package) - node.level + 1] if node.level else []
                base = ".".join(above + ([node.module] if node.module else []))
                for name in [""] + ["." + n.name for n in node.names]:
                    self.module((base + name).strip("."))

    def module(self, name):
        parts = name.split(".")
        for n in range(1, len(parts) + 1):
            one, path = ".".join(parts[:n]), os.path.join(self.folder, *parts[:n])
            if one in self.found or not parts[n - 1].isidentifier():
                continue
            if os.path.isdir(path):
                self.add(one, path, os.path.join(path, "__init__"), parts[:n])
            else:
                self.add(one, None, path, parts[: n - 1])
            if one not in self.found:
                return

    def add(self, name, folder, stem, package):
        for suffix in importlib.machinery.all_suffixes():
            if os.path.isfile(stem + suffix):
                self.found[name] = [stem + suffix, folder]
                if suffix == ".py":
                    self.read(stem + suffix, package)
                return
        if folder is not None:  # a package without __init__.py
            self.found[name] = [None, folder]


siblings = Siblings(os.path.dirname(sys.argv[1])) if len(sys.argv) > 1 else None
if siblings:
    siblings.read(sys.argv[1], [])
print(json.dumps({
    "version": sys.version_info[:2], "executable": sys.executable, "shown": interpreter(), "siblings": siblings.found if siblings else {},
}))
