if was_present then
