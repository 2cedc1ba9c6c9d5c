return {1, id, '', '', left}
