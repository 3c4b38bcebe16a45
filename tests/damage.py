"""Files as a failing disk or an attacker would leave them."""

import random


def damaged(content: bytes, rng: random.Random) -> bytes:
    """The end cut, a bit flipped, bytes exchanged for others, or everything noise."""
    way, place = rng.randrange(4), rng.randrange(len(content))
    if way == 0:
        return content[:place]
    if way == 1:
        flipped = content[place] ^ (1 << rng.randrange(8))
        return content[:place] + bytes([flipped]) + content[place + 1 :]
    if way == 2:
        noise = bytes(
            (b + 1 + rng.randrange(255)) % 256 for b in content[place : place + 16]
        )
        return content[:place] + noise + content[place + 16 :]
    return bytes(rng.randrange(256) for _ in content)


def exchanged(value: object, rng: random.Random) -> object:
    """A JSON value with one part of it exchanged for a value of some other type, or
    left out.
    """
    others = [
        None,
        True,
        -1,
        10**400,
        0.5,
        "",
        "__import__('os').abort()",
        [],
        {},
        [[]] * 3,
    ]
    if not isinstance(value, dict | list) or not value or rng.random() < 0.1:
        return rng.choice(others)
    if isinstance(value, dict):
        key = rng.choice(list(value))
        if rng.random() < 0.2:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: exchanged(value[key], rng)}
    k = rng.randrange(len(value))
    part = [] if rng.random() < 0.2 else [exchanged(value[k], rng)]
    return value[:k] + part + value[k + 1 :]
