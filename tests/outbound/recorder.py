"""Record what leaves a private network: ``python recorder.py ADDRESS``.

Answers queries of the DNS at ADDRESS with "no such name". Prints ``ready``, then a line per name that is looked up
(``name NAME``) and per connection or datagram to another network (``tcp ADDRESS PORT``, ``udp ADDRESS PORT``).
"""

import ipaddress
import select
import socket
import struct
import sys

_EVERY_PROTOCOL, _IPV4, _IPV6 = 3, 0x0800, 0x86DD
_TCP, _UDP = 6, 17
_SYN, _ACK = 0x02, 0x10


def _name(query: bytes) -> tuple[str, int]:
    """Return the name of a DNS query, and the length of the header and the question."""
    labels, position = [], 12
    while length := query[position]:
        labels.append(query[position + 1 : position + 1 + length].decode("ascii", "replace"))
        position += 1 + length
    return ".".join(labels), position + 5


def _answer(query: bytes, end: int) -> bytes:
    return query[:2] + b"\x81\x83" + b"\0\1\0\0\0\0\0\0" + query[12:end]


def _outbound(frame: bytes, network: ipaddress.IPv4Network) -> str | None:
    """Return the line for a frame; None: it stays in the network, or belongs to an open connection."""
    kind = struct.unpack("!H", frame[12:14])[0]
    if kind == _IPV4:
        start, protocol = 14 + (frame[14] & 15) * 4, frame[23]
        target: ipaddress.IPv4Address | ipaddress.IPv6Address = ipaddress.ip_address(frame[30:34])
    elif kind == _IPV6:
        start, protocol, target = 54, frame[20], ipaddress.ip_address(frame[38:54])
    else:
        return None
    if protocol not in (_TCP, _UDP) or target in network or target.is_multicast or target == _BROADCAST:
        return None
    if protocol == _TCP and frame[start + 13] & (_SYN | _ACK) != _SYN:
        return None
    return f"{'tcp' if protocol == _TCP else 'udp'} {target} {struct.unpack('!H', frame[start + 2 : start + 4])[0]}"


_BROADCAST = ipaddress.ip_address("255.255.255.255")


def _main(address: str) -> None:
    network = ipaddress.IPv4Network(f"{address}/24", strict=False)
    dns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    dns.bind((address, 53))
    frames = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_EVERY_PROTOCOL))
    print("ready", flush=True)
    while True:
        for ready in select.select([dns, frames], [], [])[0]:
            if ready is dns:
                query, client = dns.recvfrom(4096)
                name, end = _name(query)
                dns.sendto(_answer(query, end), client)
                print("name", name.lower(), flush=True)
            elif (line := _outbound(frames.recv(65536), network)) is not None:
                print(line, flush=True)


if __name__ == "__main__":
    _main(sys.argv[1])
