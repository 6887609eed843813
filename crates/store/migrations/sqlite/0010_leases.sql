-- Which server a record belongs to: the one that made it. Execs, contexts and entries of the ledger belong to the server of
-- their sandbox or run. Records from before have none.
ALTER TABLE sandboxes ADD COLUMN node TEXT;
ALTER TABLE runs ADD COLUMN node TEXT;
ALTER TABLE snapshots ADD COLUMN node TEXT;
ALTER TABLE names ADD COLUMN node TEXT;

-- Who may change what belongs to a server: `instance`, which is the server itself, or the one that takes over from it, whose
-- node is `taker`. `beats` grows while the holder lives; one that does not grow for `span_ms` is gone. `place` is where its
-- state directory was, and nothing when it stopped in order.
CREATE TABLE leases (
    node     TEXT NOT NULL PRIMARY KEY,
    instance TEXT NOT NULL,
    place    TEXT,
    beats    BIGINT NOT NULL,
    span_ms  BIGINT NOT NULL,
    taker    TEXT
);
