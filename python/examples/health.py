"""Pings a site and prints its health: health.py [NID ...], by default all peers of the daemon."""

import sys
import ulnet.admin

daemon = ulnet.admin.Client()
for net in daemon.nets(verbose=2):
    for ni in net["local NI(s)"]:
        print(ni["nid"], ni["status"], "health", ni["health stats"]["health value"])
for contact in daemon.ping(*(sys.argv[1:] or [p["primary nid"] for p in daemon.peers()]), timeout=2):
    print(contact.nid, "answers" if contact.peer else contact.error.strerror)
