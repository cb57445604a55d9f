"""What tests of HTML share: the text of a well-formed page, and a group to show."""

from html.parser import HTMLParser

import chunkmill as cm

VOID = {"br", "hr", "img"}


class Balanced(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.text = [], []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def text_of(html):
    parser = Balanced()
    parser.feed(html)
    assert not parser.open
    return " ".join(parser.text)


def sample_group(url):
    """Return a group with a sharded cube in a group of its own, and a flat array."""
    cm.create_group(url, attributes={"title": "<script>x</script>"})
    cm.create_array(
        url,
        "a/cube",
        shape=(6, 8, 10),
        dtype="f4",
        chunks=(2, 2, 5),
        shards=(2, 4, 10),
        dimension_names=("t", None, "x"),
    )
    cm.create_array(url, "flat", shape=(10, 10), dtype="i4", chunks=(3, 5), attributes={"units": "K"})
    return cm.open_group(url)
