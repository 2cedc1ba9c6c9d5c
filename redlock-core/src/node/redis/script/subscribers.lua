-- A denied PUBLISH does not fail the release.
if type(subscribers) ~= 'number' then return 1 end
return 1 + subscribers
