"""Secrets in a stream of bytes: masked whole, wherever chunks or workers begin and end, and every offset kept."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from towline.masking import MOST_LINES, SHORTEST_LINE, SHORTEST_VALUE, Mask

SECRETS = ["abab", "babc", "aaaaa", "cabab"]


def reference(data: bytes, secrets: list[str]) -> bytes:
    """Each byte within any occurrence of any secret is a star: the slow way."""
    masked = bytearray(data)
    for secret in secrets:
        text = secret.encode()
        for at in range(len(data) - len(text) + 1):
            if data[at : at + len(text)] == text:
                masked[at : at + len(text)] = b"*" * len(text)
    return bytes(masked)


def masked(mask: Mask, chunks: list[bytes]) -> bytes:
    stream = mask.stream()
    return b"".join([*map(stream.feed, chunks), stream.flush()])


ALPHABET = st.lists(st.sampled_from(b"abc."), max_size=60).map(bytes)


@settings(deadline=None)
@given(st.lists(ALPHABET, max_size=8))
def test_the_result_is_the_same_however_the_stream_is_cut(chunks: list[bytes]) -> None:
    assert masked(Mask(SECRETS), chunks) == reference(b"".join(chunks), SECRETS)


@settings(max_examples=300, deadline=None)
@given(ALPHABET, st.integers(0, 60))
def test_whoever_resumes_at_any_offset_writes_the_same_bytes(data: bytes, offset: int) -> None:
    mask = Mask(SECRETS)
    offset = min(offset, len(data))
    begin = max(0, offset - mask.context)
    resumed = masked(mask, [data[begin:]])[offset - begin :]
    assert resumed == reference(data, SECRETS)[offset:]


@settings(deadline=None)
@given(ALPHABET, ALPHABET)
def test_what_has_been_given_out_never_has_to_be_taken_back(before: bytes, after: bytes) -> None:
    given_out = Mask(SECRETS).stream().feed(before)
    assert reference(before + after, SECRETS).startswith(given_out)


def test_what_cannot_be_part_of_a_secret_is_not_held_back() -> None:
    stream = Mask(["s3cr3t-token"]).stream()
    assert stream.feed(b"progress 10 %\rdone") == b"progress 10 %\rdone"
    assert stream.feed(b" s3cr") == b" "
    assert stream.feed(b"eam\n") == b"s3cream\n"


def test_a_secret_in_two_chunks_is_masked_and_the_bytes_after_it_keep_their_offset() -> None:
    out = masked(Mask(["s3cr3t-token"]), [b"a s3cr3t", b"-tok", b"en b"])
    assert out == b"a ************ b"


def test_the_end_of_a_secret_that_begins_another_is_still_masked() -> None:
    assert masked(Mask(["token-x", "xylophone"]), [b"token-x", b"z"]) == b"*******z"


def test_each_line_of_a_key_is_masked_for_itself() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQEF\n-----END KEY-----\n"
    assert masked(Mask([key]), [b"line: kqhkiG9w0BAQEF!\r\n"]) == b"line: **************!\r\n"


def test_a_value_is_masked_without_its_blank_ends_too() -> None:
    assert masked(Mask(["s3cr3t-token\n"]), [b"[s3cr3t-token]"]) == b"[************]"


def test_any_bytes_pass_and_secrets_that_are_not_ascii_are_masked_byte_for_byte() -> None:
    data = bytes(range(256)) + "pässwörd".encode() + b"\xff\0"
    out = masked(Mask(["pässwörd"]), [data])
    assert out == bytes(range(256)) + b"*" * 10 + b"\xff\0"


def test_limits_are_those_that_are_documented() -> None:
    short = "x" * (SHORTEST_VALUE - 1)
    assert masked(Mask([short]), [short.encode()]) == short.encode()
    shortest = "x" * SHORTEST_VALUE
    assert masked(Mask([shortest]), [shortest.encode()]) == b"*" * SHORTEST_VALUE
    line = "y" * (SHORTEST_LINE - 1)
    assert masked(Mask([f"{line}\n{line}z"]), [f"{line} {line}z".encode()]) == f"{line} {'*' * 8}".encode()
    many = "\n".join(f"line-{number}" for number in range(MOST_LINES + 1))
    assert masked(Mask([many]), [b"line-100"]) == b"line-100"


def test_without_secrets_nothing_is_held_back_or_changed() -> None:
    mask = Mask([])
    assert mask.context == 0
    assert mask.stream().feed(b"any") == b"any"


def test_a_large_secret_against_its_own_beginnings_does_not_take_long() -> None:
    secret = "ab" * 30_000 + "c"
    data = b"ab" * 100_000
    assert masked(Mask([secret]), [data]) == data


def test_whether_a_secret_is_in_a_line() -> None:
    mask = Mask(["s3cr3t-token"])
    assert mask.found_in(b"a=s3cr3t-token")
    assert not mask.found_in(b"a=b")
