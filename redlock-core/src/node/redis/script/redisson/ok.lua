return redis.status_reply('OK')
