return number
