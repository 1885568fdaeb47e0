"""Runs in the guest: takes commands as JSON lines from a virtio port, answers each with its outcome."""

import base64
import glob
import json
import os
import signal
import subprocess
import threading

NAME = "uncork.lab"


def port() -> int:
    """The open virtio port that the host listens on."""
    for path in glob.glob("/sys/class/virtio-ports/*/name"):
        with open(path, encoding="utf-8") as file:
            if file.read().strip() == NAME:
                return os.open(f"/dev/{path.split('/')[-2]}", os.O_RDWR)
    raise SystemExit("no virtio port of the lab")


def run(request: dict) -> dict:
    """Run one command to its end or its time limit."""
    process = subprocess.Popen(
        request["argv"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | request.get("env", {}),
        cwd=request.get("cwd", "/"),
        start_new_session=True,
    )
    try:
        out, err = process.communicate(base64.b64decode(request.get("stdin", "")), request["timeout_s"])
        rc = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        rc = 124
    return {"rc": rc, "out": out.decode("utf-8", "replace"), "err": err.decode("utf-8", "replace")}


def main() -> None:
    """Greet, then answer until the machine ends."""
    handle, lock = port(), threading.Lock()

    def send(message: dict) -> None:
        data = (json.dumps(message) + "\n").encode()
        with lock:
            while data:
                data = data[os.write(handle, data) :]

    def answer(request: dict) -> None:
        try:
            outcome = run(request)
        except OSError as error:
            outcome = {"rc": 127, "out": "", "err": str(error)}
        send({"id": request["id"], **outcome})

    send({"hello": os.uname().release})
    buffer = b""
    while True:
        data = os.read(handle, 1 << 16)
        if not data:  # nobody listens on the host's side at the moment
            threading.Event().wait(0.1)
            continue
        *lines, buffer = (buffer + data).split(b"\n")
        for line in filter(None, lines):
            threading.Thread(target=answer, args=(json.loads(line),), daemon=True).start()


main()
