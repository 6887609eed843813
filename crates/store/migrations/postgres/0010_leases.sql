-- Which server a record belongs to: the one that made it. Execs, contexts and entries of the ledger belong to the server of
-- their sandbox or run. Records from before have none.
ALTER TABLE sandboxes ADD COLUMN node TEXT COLLATE "C";
ALTER TABLE runs ADD COLUMN node TEXT COLLATE "C";
ALTER TABLE snapshots ADD COLUMN node TEXT COLLATE "C";
ALTER TABLE names ADD COLUMN node TEXT COLLATE "C";

-- Who may change what belongs to a server: `instance`, which is the server itself, or the one that takes over from it, whose
-- node is `taker`. `beats` grows while the holder lives; one that does not grow for `span_ms` is gone. `place` is where its
-- state directory was, and nothing when it stopped in order.
CREATE TABLE leases (
    node     TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    instance TEXT COLLATE "C" NOT NULL,
    place    TEXT COLLATE "C",
    beats    BIGINT NOT NULL,
    span_ms  BIGINT NOT NULL,
    taker    TEXT COLLATE "C"
);
