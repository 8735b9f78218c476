-- description: changes that a feed lease has finished above its position, and where a bounded run ends
-- locks: relevo.feed_unit for a moment; a new column without rewriting it

-- Lanes and late confirmations finish changes in another order than they are read in. What lies above
-- the position stands here, so that the next owner skips it; it goes when the position has passed it.
create table relevo.feed_done (
  lease_id integer not null references relevo.lease on delete cascade,
  range_id integer not null,
  lsn      bigint not null,
  ordinal  integer not null,
  primary key (lease_id, range_id, lsn, ordinal)
);

-- LSN by range up to which the hosts of the present run read; null is without end.
alter table relevo.feed_unit add column until jsonb;
