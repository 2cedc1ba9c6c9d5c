"""Serves fakeredis on a free port, which it prints, until its standard input ends."""

import sys
import threading

from fakeredis import TcpFakeServer

server = TcpFakeServer(("127.0.0.1", 0), server_type="redis")
threading.Thread(target=server.serve_forever, daemon=True).start()
print(server.server_address[1], flush=True)
sys.stdin.read()
