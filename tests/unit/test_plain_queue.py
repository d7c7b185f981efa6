"""Which queueing disciplines give way to a plain one while the engine tc sends. The texts are those of `tc -j`."""

from __future__ import annotations

import pytest

from pktswarm.nodes import qdisc
from pktswarm.nodes.plain_queue import is_to_be_replaced

VETH = '[{"kind":"noqueue","handle":"0:","root":true,"refcnt":2,"options":{}}]'
CODEL = '[{"kind":"fq_codel","handle":"0:","root":true,"refcnt":2,"options":{"limit":10240,"flows":1024}}]'
SEVERAL = (
    '[{"kind":"mq","handle":"0:","root":true,"options":{}},'
    '{"kind":"fq_codel","handle":"0:","parent":":2","options":{"limit":10240}},'
    '{"kind":"fq_codel","handle":"0:","parent":":1","options":{"limit":10240}}]'
)
FAST = '[{"kind":"mq","handle":"0:","root":true},{"kind":"pfifo_fast","handle":"0:","parent":":1"}]'
OWN = '[{"kind":"tbf","handle":"8001:","root":true,"refcnt":2,"options":{"rate":1000000}}]'
FILTERED = CODEL[:-1] + ',{"kind":"clsact","handle":"ffff:","parent":"ffff:fff1","options":{}}]'
BELOW = '[{"kind":"htb","handle":"1:","root":true},{"kind":"fq_codel","handle":"0:","parent":"1:10"}]'


@pytest.mark.parametrize(
    ("text", "replaced"),
    [(VETH, False), (CODEL, True), (SEVERAL, True), (FAST, False), (OWN, False), (BELOW, False), (FILTERED, True)],
    ids=["noqueue", "fq_codel", "mq of fq_codel", "mq of pfifo_fast", "tbf", "htb of fq_codel", "clsact"],
)
def test_a_default_that_drops_what_it_has_taken_gives_way(text: str, replaced: bool) -> None:
    assert is_to_be_replaced(qdisc.parse(text)) is replaced


def test_the_root_is_named_with_its_handle() -> None:
    assert [str(one) for one in qdisc.parse(SEVERAL) if one.is_root] == ["mq 0:"]
