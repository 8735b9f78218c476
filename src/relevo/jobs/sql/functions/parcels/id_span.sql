-- From the least to the greatest key.
create or replace function relevo.id_span(ids uuid[]) returns relevo.id_range language sql immutable
return relevo.id_range((select i from unnest(ids) as i order by i limit 1), (select i from unnest(ids) as i order by i desc limit 1), '[]');
