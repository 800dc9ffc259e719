"""Who may include whom: the rooms of daemon/README.md, their levels, and the libraries each may name."""
import re

# Header prefix → where it may be named: a room, or a file. A library that is not here is new, and a design change.
LIBRARIES = {
    "grpc/": ["rpc", "daemon/ctl/grpc_control.cc", "client/src/"],
    "grpcpp/": ["rpc", "daemon/ctl/grpc_control.cc", "client/src/"],
    "google/protobuf": ["rpc", "ctl", "client/src/"],
    "gyrostat/v1/": ["rpc", "ctl", "client/src/"],
    "gyrostat/gyrostat": ["client/"],
    "gyrostat/gloo": ["client/"],
    "gyrostat/nccl": ["client/"],
    "gyrostat/cuda": ["client/"],
    "absl/": ["policy", "engine", "store", "rpc", "telemetry", "notify", "web", "config", "ctl", "service"],
    "spdlog/": ["daemon/base/log.cc"],
    "yaml-cpp/": ["config"],
    "CLI/": ["daemon/ctl/cli.cc", "daemon/ctl/propose_words.cc", "daemon/service/flags.cc"],
    "sqlite3.h": ["store"],
    "blosc.h": ["store"],
    "zlib.h": ["logs", "store"],
    "curl/": ["post"],
    "snappy.h": ["telemetry"],
    "openssl/": ["store", "notify"],
    "prometheus/": ["telemetry"],
    "httplib.h": ["web", "daemon/ctl/doctor_facts.cc"],
    "torch/": ["client/examples/torch_loop.cc"],
    "nlohmann/": ["json", "store", "web", "ctl", "service"],
    "gloo/": ["client/collectives/gloo_mesh.cc"],
    "nccl.h": ["client/collectives/device_table_check.cc"],
    "cuda_runtime_api.h": ["client/collectives/device_table_check.cc"],
    "cuda_fp16.h": ["client/cuda/"],
}
# Headers of the system that touch the world: banned from pure rooms.
POSIX = re.compile(r"^(sys|arpa|net|netinet|linux|bits)/|^(unistd|fcntl|pthread|signal|dlfcn|malloc|poll|time|stdio|"
                   r"dirent|pwd|spawn|semaphore|termios|sched)\.h$")
IMPURE_STANDARD = {
    "atomic", "barrier", "chrono", "condition_variable", "csignal", "ctime", "filesystem", "fstream", "future",
    "iostream", "latch", "mutex", "random", "semaphore", "shared_mutex", "stop_token", "thread",
}
IMPURE_BASE = {"clock.h", "log.h", "mutex.h", "probe.h", "bounded_queue.h"}
IMPURE_CALLS = re.compile(r"\b(getenv|time|clock|rand|srand|fopen|printf|fprintf|malloc_trim)\s*\(|\bthread_local\b")
MUTABLE_STATIC = re.compile(r"^\s*static\s+(?!constexpr\b|const\b|consteval\b|inline\s+constexpr\b)"
                            r"[\w:<>,\s*&]+?\s[\w]+\s*(=|;|\{)")
STANDARD = re.compile(r"^[a-z_0-9]+(\.h)?$|^(sys|arpa|net|netinet|linux|asm)/")
# What the client may take from the daemon: nothing that aborts, nothing that logs.
CLIENT_ROOMS = {"base", "model", "stats", "remedy"}
CLIENT_NEVER = {"base/check.h", "base/log.h"}


def rooms(tree):
    """{room: (level, pure)} from the table of daemon/README.md."""
    found = {}
    for match in re.finditer(r"^\|\s*(\w+)\s*\|\s*L(\d)\s*\|\s*(yes|no)\s*\|", tree.text("daemon/README.md"), re.M):
        found[match.group(1)] = (int(match.group(2)), match.group(3) == "yes")
    return found


def room_of(path):
    parts = path.split("/")
    return parts[1] if len(parts) > 2 and parts[0] == "daemon" else None


def is_root(path):
    """A composition root joins everything: that is what it is for."""
    return path.startswith("daemon/") and path.endswith("/main.cc")


def is_pure(path, table):
    room = room_of(path)
    return (room in table and table[room][1]) or re.match(r"daemon/engine/run\.(h|cc)$", path) is not None


def check_rooms(tree):
    """The table and the folders name the same rooms, and each has its README."""
    table = rooms(tree)
    if not table:
        return ["daemon/README.md:1: layers: no table of rooms (| room | L0 | no | …)"]
    found = []
    folders = {room_of(file.path) for file in tree.under("daemon/") if file.is_cxx} - {None}
    for room in sorted(folders - set(table)):
        found.append(f"daemon/{room}/: layers: the room is not in the table of daemon/README.md")
    for room in sorted(folders):
        if f"daemon/{room}/README.md" not in tree.files:
            found.append(f"daemon/{room}/: readme: a room has a README.md")
    return found


def check_includes(tree):
    """Rooms include rooms below; libraries are named only where they belong."""
    table = rooms(tree)
    found = []
    for file in tree.under("daemon/"):
        if not file.is_cxx or is_root(file.path):
            continue
        room = room_of(file.path)
        level = table.get(room, (99, False))[0]
        for number, header, quoted in file.includes():
            target = header.split("/", 1)[0]
            where = f"{file.path}:{number}"
            if quoted and target in table:
                if target != room and table[target][0] >= level:
                    found.append(f'{where}: layers: {room} (L{level}) includes "{header}" (L{table[target][0]}), '
                                 "wanted a room below it")
            else:
                found += check_library(file.path, room, where, header)
    return found


def check_library(path, room, where, header):
    for prefix, allowed in LIBRARIES.items():
        if header.startswith(prefix):
            if any(each == room or (("/" in each) and path.startswith(each)) for each in allowed):
                return []
            return [f"{where}: layers: {header} is named here, wanted only in {', '.join(allowed)}"]
    if STANDARD.match(header):
        return []
    return [f"{where}: layers: {header} belongs to no room and no known library"]


def check_purity(tree):
    """Pure rooms touch no clock, thread, lock, file, socket, log, environment, global state or randomness."""
    table = rooms(tree)
    found = []
    for file in tree.under("daemon/"):
        if not file.is_cxx or not is_pure(file.path, table):
            continue
        for number, header, _ in file.includes():
            impure_base = header.startswith("base/") and header[5:] in IMPURE_BASE
            if header in IMPURE_STANDARD or impure_base or POSIX.match(header):
                found.append(f"{file.path}:{number}: pure: a pure room includes {header}")
        for number, line in file.code_lines():
            call = IMPURE_CALLS.search(line)
            if call:
                found.append(f"{file.path}:{number}: pure: a pure room uses {call.group(0).strip()}")
            if MUTABLE_STATIC.match(line) and "(" not in line.split("=")[0]:
                found.append(f"{file.path}:{number}: pure: a pure room holds mutable static state")
    return found


def check_client(tree):
    """The client takes little from the daemon, and nothing of it, however deep, may CHECK or log."""
    found = []
    for file in tree.under("client/"):
        if not file.is_cxx:
            continue
        for number, header, quoted in file.includes():
            if not quoted:
                found += check_library(file.path, "client", f"{file.path}:{number}", header)
                continue
            for deep in sorted(closure(tree, header)):
                if deep in CLIENT_NEVER or deep.split("/", 1)[0] not in CLIENT_ROOMS:
                    found.append(f"{file.path}:{number}: layers: the client reaches {deep} through {header}, wanted "
                                 f"only {', '.join(sorted(CLIENT_ROOMS))}, never {', '.join(sorted(CLIENT_NEVER))}")
    return found


def closure(tree, header):
    """`header` and all that it includes, of those that lie under daemon/."""
    seen, todo = set(), [header]
    while todo:
        each = todo.pop()
        file = tree.files.get("daemon/" + each)
        if each in seen or file is None:
            continue
        seen.add(each)
        todo += [name for _, name, quoted in file.includes() if quoted]
    return seen


CHECKS = [check_rooms, check_includes, check_purity, check_client]
