CREATE TABLE changes (
    revision BIGINT NOT NULL,
    position BIGINT NOT NULL,
    kind VARCHAR(16) NOT NULL,
    id VARCHAR(64) NOT NULL,
    operation VARCHAR(8) NOT NULL,
    actor TEXT NOT NULL,
    at_ms BIGINT NOT NULL,
    "before" TEXT,
    "after" TEXT,
    checksum BIGINT NOT NULL,
    PRIMARY KEY (revision, position)
);
INSERT INTO "changes" VALUES(2,0,'server','fs','put','bob',1000,'{"server_id":"fs","n":1}','{"server_id":"fs","n":2}',4259908634);
INSERT INTO "changes" VALUES(3,0,'task','review','delete','bob',1000,'{"task_id":"review"}',NULL,2265912970);
CREATE TABLE head (
    id SMALLINT NOT NULL,
    schema_version BIGINT NOT NULL,
    epoch VARCHAR(32) NOT NULL,
    revision BIGINT NOT NULL,
    compacted BIGINT NOT NULL,
    checksum BIGINT NOT NULL,
    PRIMARY KEY (id)
);
INSERT INTO "head" VALUES(1,1,'52d3d833d7ab4926b571d5ddf7b90238',3,1,2999572722);
CREATE TABLE records (
    kind VARCHAR(16) NOT NULL,
    id VARCHAR(64) NOT NULL,
    revision BIGINT NOT NULL,
    updated_at_ms BIGINT NOT NULL,
    actor TEXT NOT NULL,
    body TEXT NOT NULL,
    checksum BIGINT NOT NULL,
    PRIMARY KEY (kind, id)
);
INSERT INTO "records" VALUES('server','fs',2,1000,'bob','{"server_id":"fs","n":2}',811225485);
CREATE INDEX changes_by_record ON changes (kind, id, revision);
