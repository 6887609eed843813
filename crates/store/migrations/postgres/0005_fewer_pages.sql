-- Fewer pages for what every run writes: no index that only forgetting would use.

DROP INDEX events_by_age;
DROP INDEX events_by_sandbox;
CREATE INDEX events_by_sandbox ON events (tenant, sandbox, seq) WHERE sandbox IS NOT NULL;

DROP INDEX runs_ended;
