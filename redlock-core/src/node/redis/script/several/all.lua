local count = #KEYS
