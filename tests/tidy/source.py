"""Reads the tree for the house checks: which files there are, and what of them is code, not comment or string."""
import ast
import re
from dataclasses import dataclass, field
from pathlib import Path

SKIPPED_DIRS = {".git", "build", "node_modules", "__pycache__", ".pytest_cache", "third_party"}
CXX = {".cc", ".h", ".hpp", ".c", ".cu"}
# One alternative for each thing that is not code. Raw strings first: they hold anything.
NOT_CODE = re.compile(
    r'R"(?P<delim>[^()\\\s]{0,16})\(.*?\)(?P=delim)"'
    r"|//[^\n]*|/\*.*?\*/"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'",  # Not the ' of 1'000.
    re.DOTALL,
)


def blank(match):
    """The same lines, without their text; a string keeps its quotes so that code around it still reads as code."""
    text = match.group(0)
    kept = "\n" * text.count("\n")
    return kept if text.startswith("/") else '""' + kept


@dataclass
class File:
    path: str  # From the root, with slashes.
    text: str
    executable: bool = False
    lines: list = field(default_factory=list)

    def __post_init__(self):
        self.lines = self.text.split("\n")
        if self.lines and self.lines[-1] == "":
            self.lines.pop()

    @property
    def name(self):
        return self.path.rsplit("/", 1)[-1]

    @property
    def suffix(self):
        return "." + self.name.rsplit(".", 1)[1] if "." in self.name[1:] else ""

    @property
    def is_cxx(self):
        return self.suffix in CXX

    @property
    def is_python(self):
        return self.suffix == ".py" or (self.lines[:1] and "python" in self.lines[0] and self.lines[0].startswith("#!"))

    @property
    def is_shell(self):
        return bool(self.lines) and re.match(r"#!.*\b(ba)?sh\b", self.lines[0]) is not None

    @property
    def is_cmake(self):
        return self.name == "CMakeLists.txt" or self.suffix == ".cmake"

    @property
    def is_code(self):
        other = self.suffix in (".proto", ".css", ".js")
        return self.is_cxx or self.is_python or self.is_shell or self.is_cmake or other

    def code_lines(self):
        """(number, line) without comments and string contents: C++ and CMake; other files come as they are."""
        if self.is_cxx or self.suffix == ".proto":
            text = NOT_CODE.sub(blank, self.text)
        elif self.is_cmake:
            text = re.sub(r"#[^\n]*", "", self.text)
        else:
            text = self.text
        return list(enumerate(text.split("\n"), 1))

    def includes(self):
        """(number, header, quoted) of each #include."""
        for number, line in enumerate(self.lines, 1):
            match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
            if match:
                yield number, match.group(2), match.group(1) == '"'


class Tree:
    def __init__(self, root):
        self.root = Path(root)
        self.files = {}
        for path in sorted(self.root.rglob("*")):
            relative = path.relative_to(self.root)
            if SKIPPED_DIRS & set(relative.parts) or path.is_symlink() or not path.is_file():
                continue
            try:
                text = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue  # A corpus of a fuzzer, a picture: no rule is about those.
            name = relative.as_posix()
            self.files[name] = File(name, text, bool(path.stat().st_mode & 0o111))

    def under(self, *prefixes):
        return [file for path, file in self.files.items() if path.startswith(prefixes)]

    def text(self, path):
        return self.files[path].text if path in self.files else ""


def cxx_functions(file):
    """(name, first line, last line) of each function that is defined in a C++ file, found by counting braces.

    A brace opens a function where a ')' stands before it at namespace or class scope; braces within are its own."""
    text = NOT_CODE.sub(blank, file.text)
    text = re.sub(r"(?m)^\s*#(?:[^\n]*\\\n)*[^\n]*", lambda m: "\n" * m.group(0).count("\n"), text)
    scopes, functions = [], []  # Scopes: ("outer" | "inner" | "function", head, line).
    head, head_line, line = "", 1, 1
    for char in text:
        if char == "\n":
            line += 1
        if char == "{":
            outside = all(kind == "outer" for kind, _, _ in scopes)
            scopes.append((scope_kind(head) if outside else "inner", head, head_line))
            head = ""
        elif char == "}":
            if scopes:
                kind, opened, first = scopes.pop()
                if kind == "function":
                    functions.append((function_name(opened), first, line))
            head = ""
        elif char == ";":
            head = ""
        else:
            if not head.strip():
                head, head_line = "", line
            head += char
    return functions


def scope_kind(head):
    head = head.strip()
    if re.match(r"(inline\s+)?namespace\b|extern\s*\"", head):
        return "outer"
    parameters = re.search(r"\)\s*(const|override|noexcept|final|\s)*$", head)  # A function may return a struct.
    if re.search(r"(^|\s)(class|struct|union|enum)\s", head) and not parameters:
        return "outer"
    if head.endswith(("=", ",", "(", "return")) or ")" not in head:
        return "inner"
    return "function"


def function_name(head):
    before = head.split("(", 1)[0].strip()
    return before.split()[-1] if before else "?"


def python_functions(file):
    """(name, first line, last line) of each function of a Python file; a file that does not parse has none."""
    try:
        module = ast.parse(file.text)
    except SyntaxError:
        return []
    return [(node.name, node.lineno, node.end_lineno) for node in ast.walk(module)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
