-- A denied PUBLISH does not fail the release.
if type(listeners) ~= 'number' then return 1 end
return 1 + listeners
