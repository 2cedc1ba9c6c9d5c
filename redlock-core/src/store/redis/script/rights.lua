-- a channel, and commands, each as the number of its words and its words. None of them changes anything: their key does not
-- exist. The key is no KEYS, so that every master of a cluster runs the script, whichever slot the key has: a server checks the
-- permissions first.
local refused, first = {}, 2
while first < #ARGV do
  local last = first + ARGV[first]
  local reply = redis.pcall(unpack(ARGV, first + 1, last))
  if type(reply) == 'table' and reply.err then
    refused[#refused + 1] = ARGV[first + 1]
    refused[#refused + 1] = reply.err
  end
  first = last + 1
end
-- Nobody gets a message. Redis 6.2 has no function for this check.
if redis.acl_check_cmd and not redis.acl_check_cmd('PUBLISH', ARGV[1], '0') then
  refused[#refused + 1] = 'PUBLISH'
  refused[#refused + 1] = 'NOPERM'
end
return refused
