-- description: imports know which of their steps are done, and which rows replaced an item
-- locks: relevo.import and relevo.import_row for a moment: columns are added

-- The last step that was done to its end: 3 parsed, 4 transformed. Imports under way are not held up.
alter table relevo.import add column step integer not null default 4;
alter table relevo.import alter column step set default 0;

-- Whether an item was there already: then nothing was created that could be undone.
alter table relevo.import_row add column replaced boolean not null default false;
