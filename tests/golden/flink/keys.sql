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
  `(k % 10)` AS `k`,
  `count(*)` AS `n`
FROM (
  SELECT
    `(k % 10)`,
    COUNT(*) AS `count(*)`
  FROM (
    SELECT
      CAST(MOD(`k`, 10) AS INT) AS `(k % 10)`
    FROM `p` AS `i`
    WHERE (`k` IS NOT NULL)
  ) AS `i`
  GROUP BY `(k % 10)`
) AS `i`;

CREATE TEMPORARY TABLE `m/sink` (
  `k` INT,
  `n` BIGINT,
  PRIMARY KEY (`k`) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka',
  'topic' = 'm-out',
  'properties.bootstrap.servers' = '${BROKERS}',
  'key.format' = 'json',
  'key.json.timestamp-format.standard' = 'ISO-8601',
  'key.json.encode.decimal-as-plain-number' = 'true',
  'value.format' = 'json',
  'value.json.timestamp-format.standard' = 'ISO-8601',
  'value.json.encode.decimal-as-plain-number' = 'true'
);

SET 'pipeline.name' = 'streamform/shop/prod/m';

EXECUTE STATEMENT SET
BEGIN
INSERT INTO `m/sink` (`k`, `n`)
SELECT `k`, `n`
FROM `m`;
END;
