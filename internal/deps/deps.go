//go:build deps

package deps

import (
	_ "golang.org/x/net/http2"
	_ "github.com/danielpaulus/go-ios/ios"
	_ "github.com/danielpaulus/go-ios/ios/afc"
	_ "github.com/danielpaulus/go-ios/ios/fileservice"
	_ "github.com/danielpaulus/go-ios/ios/house_arrest"
	_ "github.com/danielpaulus/go-ios/ios/imagemounter"
	_ "github.com/danielpaulus/go-ios/ios/instruments"
	_ "github.com/danielpaulus/go-ios/ios/tunnel"
	_ "github.com/google/uuid"
	_ "github.com/klauspost/compress/zstd"
	_ "github.com/parquet-go/parquet-go"
	_ "github.com/pierrec/lz4/v4"
	_ "github.com/rs/zerolog"
	_ "github.com/spf13/cobra"
	_ "go.uber.org/goleak"
	_ "golang.org/x/mod/sumdb/note"
	_ "golang.org/x/mod/sumdb/tlog"
	_ "golang.org/x/sys/unix"
	_ "golang.org/x/term"
	_ "gopkg.in/yaml.v3"
	_ "howett.net/plist"
	_ "modernc.org/sqlite"
	_ "pgregory.net/rapid"
)
