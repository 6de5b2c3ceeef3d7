// Go's own client, over HTTP/2.
package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
)

func main() {
	page, err := http.Get("https://web.clients.example/hello")
	if err != nil {
		panic(err)
	}
	sent, err := http.Post("https://web.clients.example/sum", "text/plain", strings.NewReader(strings.Repeat("g", 1<<20)))
	if err != nil {
		panic(err)
	}
	body, _ := io.ReadAll(sent.Body)
	if page.ProtoMajor != 2 || page.StatusCode != 200 || !strings.Contains(string(body), "1048576") {
		panic(fmt.Sprint(page, string(body)))
	}
	fmt.Println("go ok")
}
