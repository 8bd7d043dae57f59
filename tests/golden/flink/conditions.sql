SET 'table.local-time-zone' = 'UTC';

SET 'table.exec.sink.not-null-enforcer' = 'ERROR';

SET 'table.exec.sink.upsert-materialize' = 'NONE';

SET 'table.optimizer.agg-phase-strategy' = 'ONE_PHASE';

SET 'execution.checkpointing.interval' = '10000 ms';

CREATE TEMPORARY TABLE `p` (
  `at` TIMESTAMP(3),
  `b` BOOLEAN,
  `i` INT,
  `k` BIGINT,
  `s` STRING,
  `v` DECIMAL(12, 2)
) WITH (
  'connector' = 'kafka',
  'topic' = 'plain',
  'properties.bootstrap.servers' = '${BROKERS}',
  'properties.group.id' = 'streamform-shop-prod-m',
  'properties.isolation.level' = 'read_committed',
  'scan.startup.mode' = 'earliest-offset',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601'
);

CREATE TEMPORARY VIEW `m` AS
SELECT
  `k`,
  CAST(CASE WHEN (`i` IN (1, 2)) THEN 'x' WHEN `b` THEN `s` ELSE CAST(NULL AS STRING) END AS STRING) AS `c`
FROM `p` AS `i`
WHERE (`s` LIKE 'a!%' ESCAPE '!');

CREATE TEMPORARY TABLE `m/sink` (
  `k` BIGINT,
  `c` STRING
) WITH (
  'connector' = 'kafka',
  'topic' = 'm-out',
  'properties.bootstrap.servers' = '${BROKERS}',
  'format' = 'json',
  'json.timestamp-format.standard' = 'ISO-8601',
  'json.encode.decimal-as-plain-number' = 'true'
);

SET 'pipeline.name' = 'streamform/shop/prod/m';

EXECUTE STATEMENT SET
BEGIN
INSERT INTO `m/sink` (`k`, `c`)
SELECT `k`, `c`
FROM `m`;
END;
