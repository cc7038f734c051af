"""Plays a process of the stack: `python fake_process.py PORT [FLAGS]`. It answers 200 on every path once it is up.

--say TEXT     a line to log first
--exit CODE    end with this code instead of serving
--kill         end by SIGKILL instead of serving
--stubborn     ignore SIGTERM
--offspring    start a child that ignores SIGTERM and never ends, as an engine core that hangs
--unready      answer 503
"""

import argparse
import http.server
import os
import signal
import subprocess
import sys

parser = argparse.ArgumentParser()
parser.add_argument("port", type=int)
parser.add_argument("--say")
parser.add_argument("--exit", type=int)
parser.add_argument("--kill", action="store_true")
parser.add_argument("--stubborn", action="store_true")
parser.add_argument("--offspring", action="store_true")
parser.add_argument("--unready", action="store_true")
args = parser.parse_args()

OFFSPRING = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("offspring", flush=True)
time.sleep(600)
"""


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(503 if args.unready else 200)
        self.end_headers()
        if args.unready:
            print("not ready", flush=True)

    def log_message(self, *_: object) -> None:
        pass


def end(*_: object) -> None:
    print("ended in good order", flush=True)
    os._exit(0)


signal.signal(signal.SIGTERM, signal.SIG_IGN if args.stubborn else end)
if args.say:
    print(args.say, flush=True)
if args.offspring:
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", OFFSPRING], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
if args.kill:
    os.kill(os.getpid(), signal.SIGKILL)
if args.exit is not None:
    sys.exit(args.exit)
print("serving", flush=True)
http.server.HTTPServer(("127.0.0.1", args.port), Handler).serve_forever()
