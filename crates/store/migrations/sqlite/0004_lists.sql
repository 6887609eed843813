-- Pages of living sandboxes without a look at all those that ended; runs that were answered with an earlier result.

CREATE INDEX sandboxes_living_by_age ON sandboxes (tenant, created_at, id) WHERE ended_at IS NULL;
-- With everything that a count of them asks for.
DROP INDEX sandboxes_living;
CREATE INDEX sandboxes_living ON sandboxes (tenant, cpu_milli, memory_bytes, ended_at) WHERE ended_at IS NULL;
DROP INDEX runs_unfinished;
CREATE INDEX runs_unfinished ON runs (tenant, created_at, id) WHERE ended_at IS NULL;
DROP INDEX execs_running;
CREATE INDEX execs_running ON execs (tenant, sandbox, started_at, id) WHERE ended_at IS NULL;

ALTER TABLE usage ADD COLUMN cached_runs BIGINT NOT NULL DEFAULT 0;
