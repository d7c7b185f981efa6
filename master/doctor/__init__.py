"""The health of a cluster: asked of every host (ask), judged (judge), shown (show)."""
