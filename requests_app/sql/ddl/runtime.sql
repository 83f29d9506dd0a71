-- What operators changed is history (design 4.3): nobody edits or removes it.

CREATE TRIGGER runtime_change_append_only BEFORE UPDATE OR DELETE ON runtime_change FOR EACH ROW
  EXECUTE FUNCTION refuse_change('history');
