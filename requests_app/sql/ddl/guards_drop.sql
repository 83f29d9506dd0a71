DROP FUNCTION refuse_change() CASCADE;
