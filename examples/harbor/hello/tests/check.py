assert open('/app/hello.txt').read().strip() == 'hello'
