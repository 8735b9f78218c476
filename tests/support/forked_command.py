"""`relevo` and `python` for shells of tests: the fork server does the work, in milliseconds.

It behaves as the command would: with its files, its folder and its environment, its exit code, and
signals passed on. `python -c` and the like run in an interpreter of their own. `install` puts it
into a folder for PATH; the server's socket is inherited, with its number in the environment.
"""

import _signal  # type: ignore[import-not-found]
import _socket
import os
import sys

SOCKET = "RELEVO_TEST_FORKS"
NAMES = ("relevo", "python")
PASSED_ON = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP)


def install(folder: str) -> None:
    """Put the commands into a folder."""
    with open(__file__, "rb") as file:
        text = f"#!{sys.executable} -IS\n".encode() + file.read()
    for name in NAMES:
        path = os.path.join(folder, name)
        with open(path, "wb") as file:
            file.write(text)
        os.chmod(path, 0o755)


def what(command: str, arguments: list[str]) -> tuple[str, str, list[str]]:
    """Return the module or file to run, the first entry of its path, and its arguments."""
    if command == "relevo":
        return "relevo.cli", os.path.dirname(sys.executable), arguments
    if arguments[0] == "-m":
        return arguments[1], os.getcwd(), arguments[2:]
    if arguments[0] == "-":
        return "-", "", arguments[1:]
    return arguments[0], os.path.dirname(os.path.abspath(arguments[0])), arguments[1:]


def main() -> None:
    command, given = os.path.basename(sys.argv[0]), sys.argv[1:]
    if command == "python" and not given[0].endswith(".py") and given[0] not in ("-", "-m"):
        os.execv(sys.executable, [sys.executable, *given])
    module, first, arguments = what(command, given)
    settings = [f"{name}={value}" for name, value in os.environ.items()]
    words = [module, first, os.getcwd(), "tied", str(len(arguments)), *arguments, *settings]
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    files = b"".join(n.to_bytes(4, sys.byteorder) for n in (0, 1, 2, theirs.fileno()))
    requests = _socket.socket(fileno=int(os.environ[SOCKET]))
    requests.sendmsg(
        [os.fsencode("\0".join(words))], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)]
    )
    theirs.close()
    pid = int(ours.recv(64))
    for number in PASSED_ON:
        _signal.signal(number, lambda number, _: os.kill(pid, number))
    code = int(ours.recv(64))
    if code < 0:
        _signal.signal(-code, _signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
