"""What the client's libraries show to a process: symbols, needed libraries, headers that compile anywhere, an install
that another project finds."""
import os
import re
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(os.environ["GYROSTAT_SOURCE_DIR"])
BUILD = Path(os.environ["GYROSTAT_BIN"]).parent
LIBRARY = BUILD / "lib" / "libgyrostat.so"
TRANSPORT = BUILD / "lib" / "libgyrostat_transport.so"
GOLDEN = SOURCE / "tests" / "golden" / "client_symbols.txt"
BACKENDS = ["gloo", "nccl", "cuda"]


@pytest.fixture(params=BACKENDS)
def backend(request):
    """(name, library) of a backend that was built."""
    library = BUILD / "lib" / f"libgyrostat_{request.param}.so"
    if not library.exists():
        pytest.skip(f"{library.name} was left out of this build")
    return request.param, library


def sh(*command, **more):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=300, **more)
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}"
    return done.stdout


def exported(library):
    lines = sh("nm", "--dynamic", "--defined-only", library).splitlines()
    return sorted(re.sub("@.*", "", line.split()[-1]) for line in lines if line.split()[-2] != "A")


def needed(library):
    return re.findall(r"\(NEEDED\).*\[(.+)\]", sh("readelf", "--dynamic", "--wide", library))


def test_the_library_exports_the_golden_list_and_nothing_else():
    symbols = exported(LIBRARY)
    if os.environ.get("GYROSTAT_UPDATE_GOLDEN") == "1":
        GOLDEN.write_text("\n".join(symbols) + "\n")
    assert symbols == GOLDEN.read_text().split()


def test_the_header_declares_exactly_what_the_library_exports():
    header = (SOURCE / "client" / "include" / "gyrostat" / "gyrostat.h").read_text()
    declared = re.findall(r"GYRO_API [^;]*?(gyro_\w+)\(", header)
    assert sorted(declared) == GOLDEN.read_text().split()


def test_the_transport_exports_its_table_only():
    assert exported(TRANSPORT) == ["gyrostat_transport_v1"]


def test_a_backend_exports_what_its_header_declares_and_needs_nothing_of_ours(backend):
    name, library = backend
    header = (SOURCE / "client" / "include" / "gyrostat" / f"{name}.h").read_text()
    declared = re.findall(r"GYRO_API [^;]*?(gyro_\w+)\(", header)
    assert exported(library) == sorted(declared)
    assert not [each for each in needed(library) if "gyrostat" in each or "spdlog" in each]
    dynamic = sh("readelf", "--dynamic", "--wide", library)
    assert f"[libgyrostat_{name}.so.0]" in dynamic and "NODELETE" in dynamic


@pytest.mark.parametrize("word", ["grpc", "gpr", "protobuf", "absl", "upb", "spdlog", "fmt"])
def test_the_library_needs_nothing_of(word):
    assert not [name for name in needed(LIBRARY) if word in name]


def test_the_library_has_its_soname_and_is_never_unmapped():
    dynamic = sh("readelf", "--dynamic", "--wide", LIBRARY)
    assert "[libgyrostat.so.0]" in dynamic
    assert "NODELETE" in dynamic


@pytest.mark.parametrize("compiler,standard", [("cc", "c11"), ("cc", "c17"), ("c++", "c++17"), ("c++", "c++20")])
def test_the_headers_compile_alone(tmp_path, compiler, standard):
    cxx = compiler == "c++"
    source = tmp_path / ("user.cc" if cxx else "user.c")
    headers = ["gyrostat.hpp" if cxx else "gyrostat.h"] + [f"{name}.h" for name in BACKENDS]
    includes = "".join(f"#include <gyrostat/{header}>\n" for header in headers)
    source.write_text(f"{includes}int user(void);\nint user(void) {{ return 0; }}\n")
    sh(compiler, f"-std={standard}", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I", SOURCE / "client" / "include",
       "-c", source, "-o", tmp_path / "user.o")


def test_an_installed_client_is_found_built_against_and_run(tmp_path):
    prefix = tmp_path / "prefix"
    sh("cmake", "--install", BUILD, "--component", "client", "--prefix", prefix)
    sh("cmake", "-G", "Ninja", "-S", SOURCE / "tests" / "consumer", "-B", tmp_path / "build",
       f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_BUILD_TYPE=Debug")
    sh("cmake", "--build", tmp_path / "build")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GYROSTAT_")}
    assert sh(tmp_path / "build" / "consumer", env=environment) == "0.1.0: inactive\n"
    # With an address the transport is found beside the installed library, wherever that is.
    environment["GYROSTAT_ADDRESS"] = "127.0.0.1:1"
    assert sh(tmp_path / "build" / "consumer", env=environment) == "0.1.0: active\n"


@pytest.mark.parametrize("example", ["gyrostat-example-c", "gyrostat-example-cc"])
@pytest.mark.parametrize("address", ["", "127.0.0.1:1"])
def test_the_examples_run_without_a_daemon(example, address):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GYROSTAT_")}
    out = sh(BUILD / "bin" / example, "20", "1", env={**environment, "GYROSTAT_ADDRESS": address})
    assert f"steps=20 " in out and out.endswith("orders_applied=0\n")
